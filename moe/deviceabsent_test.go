package moe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"goshmem/moe"
	"goshmem/moe/internal/cudarun"
	"goshmem/pe"
)

// Without a GPU every rank is told, and the world goes on.
func TestDeviceAbsent(t *testing.T) {
	if _, err := cudarun.Load(); err == nil {
		t.Skip("there is a GPU") // its tests are the others
	}
	err := pe.Run(t.Context(), pe.Config{Size: 2, HeapSize: 1 << 20}, func(p *pe.PE) error {
		_, err := moe.NewDevice(context.Background(), p.Team(), moe.Config{Experts: 2, TopK: 1, Hidden: 8, MaxTokens: 1}, moe.DeviceOptions{})
		if !errors.Is(err, pe.ErrUnsupported) {
			return fmt.Errorf("pe %d: %w", p.Rank(), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
