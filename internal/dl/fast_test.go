//go:build !dlslow

package dl

const slow = false
