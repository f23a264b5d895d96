//go:build dlslow

package dl

const slow = true
