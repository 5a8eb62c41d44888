// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podwire

import (
	"bytes"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// filter appends a message to a buffer without the fields that do not remain. It reports false if it does not
// understand the message.
func (m *message) filter(to, encoded []byte) ([]byte, bool) {
	for len(encoded) > 0 {
		number, kind, header := protowire.ConsumeTag(encoded)
		if header < 0 {
			return to, false
		}
		length := protowire.ConsumeFieldValue(number, kind, encoded[header:])
		if length < 0 {
			return to, false
		}
		field := encoded[:header+length]
		encoded = encoded[header+length:]
		if m.drop.has(number) || m.keep != 0 && !m.keep.has(number) {
			continue
		}
		var understood bool
		if to, understood = m.appendField(to, field, number, header); !understood {
			return to, false
		}
	}
	return to, true
}

// appendField appends what remains of a field, whose tag has some length.
func (m *message) appendField(to, field []byte, number protowire.Number, tag int) ([]byte, bool) {
	value, length := protowire.ConsumeBytes(field[tag:])
	if number >= fieldLimit || tag+length != len(field) {
		return append(to, field...), true
	}
	if wanted := m.named[number]; wanted != nil {
		if wanted(string(bytesOf(value, 1))) {
			to = append(to, field...)
		}
		return to, true
	}
	if inner := m.within[number]; inner != nil {
		return nest(append(to, field[:tag]...), len(value), func(to []byte) ([]byte, bool) { return inner.filter(to, value) })
	}
	return append(to, field...), true
}

// nest appends a value of at most some bytes, after its length.
func nest(to []byte, most int, value func(to []byte) ([]byte, bool)) ([]byte, bool) {
	before, room := len(to), protowire.SizeVarint(uint64(most))
	to, understood := value(append(to, make([]byte, room)...))
	if !understood {
		return to, false
	}
	length := uint64(len(to) - before - room)
	// A shorter value may need less room for its length.
	if unused := room - protowire.SizeVarint(length); unused > 0 {
		to = slices.Delete(to, before, before+unused)
	}
	protowire.AppendVarint(to[before:before], length)
	return to, true
}

// bytesOf returns the last value of a field with bytes, which is the one that decoders keep. It returns nothing if it
// does not understand the message.
func bytesOf(encoded []byte, wanted protowire.Number) (last []byte) {
	for len(encoded) > 0 {
		number, kind, header := protowire.ConsumeTag(encoded)
		if header < 0 {
			return nil
		}
		length := protowire.ConsumeFieldValue(number, kind, encoded[header:])
		if length < 0 {
			return nil
		}
		if number == wanted && kind == protowire.BytesType {
			last, _ = protowire.ConsumeBytes(encoded[header:])
		}
		encoded = encoded[header+length:]
	}
	return last
}

// magic precedes each object in the protobuf encoding of Kubernetes.
const magic = "k8s\x00"

// filterEvent appends a watch event to a buffer, and drops the fields of its pod that do not remain. It reports false if
// the event has no pod, such as one with an error, or if it does not understand the event.
//
// A WatchEvent has a type (1) and an object (2). The object is a RawExtension, which has raw (1): the magic and an
// Unknown, which the message is about.
func (m *message) filterEvent(to, encoded []byte) ([]byte, bool) {
	kind := bytesOf(encoded, 1)
	extension := bytesOf(encoded, 2)
	object := bytesOf(extension, 1)
	unknown, marked := bytes.CutPrefix(object, []byte(magic))
	if !marked || !isPod(unknown) {
		return to, false
	}
	to = protowire.AppendTag(to, 1, protowire.BytesType)
	to = protowire.AppendBytes(to, kind)
	to = protowire.AppendTag(to, 2, protowire.BytesType)
	return nest(to, len(extension), func(to []byte) ([]byte, bool) {
		to = protowire.AppendTag(to, 1, protowire.BytesType)
		return nest(to, len(object), func(to []byte) ([]byte, bool) {
			return m.filter(append(to, magic...), unknown)
		})
	})
}

// isPod reports whether an Unknown is a pod. Its typeMeta (1) has an apiVersion (1) and a kind (2).
func isPod(unknown []byte) bool {
	meta := bytesOf(unknown, 1)
	version := bytesOf(meta, 1)
	kind := bytesOf(meta, 2)
	return string(version) == "v1" && string(kind) == "Pod"
}
