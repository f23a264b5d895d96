//go:build linux && (amd64 || arm64) && !nopurego

package dl

const loadable = true
