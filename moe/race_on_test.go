//go:build race

package moe_test

const raceBuild = true
