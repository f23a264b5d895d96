//go:build linux && (amd64 || arm64) && !nopurego

package libc

const loadable = true
