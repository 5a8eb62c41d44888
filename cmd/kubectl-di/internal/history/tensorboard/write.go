// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tensorboard writes curves as an event file of TensorBoard: records of TFRecord, each a
// protobuf message tensorflow.Event. TensorBoard has no Go library that is maintained.
package tensorboard

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"opendilab.org/di-orchestrator/history/record"
)

// The fields of the messages, by their numbers in event.proto and summary.proto of TensorFlow.
const (
	eventWallTime    = 1
	eventStep        = 2
	eventFileVersion = 3
	eventSummary     = 5
	summaryValue     = 1
	valueTag         = 1
	valueSimple      = 2
)

// fileVersion is what the first event of each file says.
const fileVersion = "brain.Event:2"

// castagnoli is the polynomial of the checksums, and maskDelta is added to the rotated ones.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const maskDelta = 0xa282ead8

// Write writes curves. A step is a second since the start.
func Write(to io.Writer, start time.Time, curves []record.Series) error {
	out := bufio.NewWriter(to)
	first := protowire.AppendString(protowire.AppendTag(header(start), eventFileVersion, protowire.BytesType), fileVersion)
	if err := writeRecord(out, first); err != nil {
		return err
	}
	for _, series := range curves {
		for _, point := range series.Points {
			if err := writeRecord(out, event(start, series.Name, point)); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

// header returns the start of an event at a time.
func header(at time.Time) []byte {
	seconds := float64(at.UnixMicro()) / 1e6
	return protowire.AppendFixed64(protowire.AppendTag(nil, eventWallTime, protowire.Fixed64Type), math.Float64bits(seconds))
}

// event returns the event of a point.
func event(start time.Time, series string, point record.Point) []byte {
	value := protowire.AppendString(protowire.AppendTag(nil, valueTag, protowire.BytesType), series)
	value = protowire.AppendFixed32(protowire.AppendTag(value, valueSimple, protowire.Fixed32Type), math.Float32bits(float32(point.Value)))
	summary := protowire.AppendBytes(protowire.AppendTag(nil, summaryValue, protowire.BytesType), value)
	// A job may report times before its start.
	step := max(0, int64(point.At.Sub(start)/time.Second))
	encoded := protowire.AppendVarint(protowire.AppendTag(header(point.At), eventStep, protowire.VarintType), uint64(step))
	return protowire.AppendBytes(protowire.AppendTag(encoded, eventSummary, protowire.BytesType), summary)
}

// writeRecord writes a record of TFRecord: its length, and its data, each with a checksum.
func writeRecord(to io.Writer, data []byte) error {
	framed := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	framed = binary.LittleEndian.AppendUint32(framed, masked(framed))
	framed = append(framed, data...)
	framed = binary.LittleEndian.AppendUint32(framed, masked(data))
	_, err := to.Write(framed)
	return err
}

// masked returns the checksum of data, masked as TFRecord does.
func masked(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + maskDelta
}
