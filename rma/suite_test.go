package rma_test

import (
	"testing"

	"goshmem/internal/suite"
)

func TestConformance(t *testing.T) {
	for _, s := range suite.Matrix(testing.Short()) {
		suite.Run(t, s, suite.RMA())
	}
}
