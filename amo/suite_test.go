package amo_test

import (
	"testing"

	"goshmem/internal/suite"
)

func TestConformance(t *testing.T) {
	for _, s := range suite.Matrix() {
		suite.Run(t, s, suite.AMO())
	}
}
