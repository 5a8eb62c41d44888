// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tensorboard_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/tensorboard"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func at(seconds float64) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// TestTheFirstRecordIsThatOfTensorFlow compares the record of the file's version with the bytes of a
// file that TensorFlow wrote, but for the time and the checksum of the data.
func TestTheFirstRecordIsThatOfTensorFlow(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	expect.NoError(t, tensorboard.Write(&out, at(0), nil))
	content := out.Bytes()
	// The length 24, its masked checksum, the tag of a double; then the text behind the time.
	expect.Equal(t, "start", "1800000000000000a37f4b2209", hex.EncodeToString(content[:13]))
	expect.Equal(t, "version", "1a0d627261696e2e4576656e743a32", hex.EncodeToString(content[21:36]))
}

func TestAnotherReaderReadsTheCurves(t *testing.T) {
	t.Parallel()
	curves := []record.Series{
		{Name: "loss", Points: []record.Point{{At: at(-5), Value: 0.5}, {At: at(10.25), Value: -1e6}}},
		{Name: "reward/mean", Points: []record.Point{{At: at(3600), Value: 21, Seconds: 300}}},
	}
	var out bytes.Buffer
	expect.NoError(t, tensorboard.Write(&out, at(0), curves))
	events, err := readAll(out.Bytes())
	expect.NoError(t, err)
	start := float64(at(0).Unix())
	expect.Equal(t, "events", []event{
		{Wall: start, Version: "brain.Event:2"},
		{Wall: start - 5, Tag: "loss", Value: 0.5},
		{Wall: start + 10.25, Step: 10, Tag: "loss", Value: -1e6},
		{Wall: start + 3600, Step: 3600, Tag: "reward/mean", Value: 21},
	}, events)
}

// full is a disk without room.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestAnErrorOfTheFileIsReturned(t *testing.T) {
	t.Parallel()
	if err := tensorboard.Write(full{}, at(0), nil); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}
