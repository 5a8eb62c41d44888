// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tensorboard_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// event is an event with at most one scalar.
type event struct {
	Wall         float64
	Step         int64
	Version, Tag string
	Value        float32
}

// readAll reads a file as TensorFlow specifies it, with nothing of the writer: it computes checksums bit
// by bit, and decodes messages by their descriptors.
func readAll(content []byte) ([]event, error) {
	kind, err := eventKind()
	if err != nil {
		return nil, err
	}
	var events []event
	for len(content) > 0 {
		if len(content) < 16 {
			return nil, errors.New("a record is cut")
		}
		length := binary.LittleEndian.Uint64(content)
		if got, want := binary.LittleEndian.Uint32(content[8:]), checksum(content[:8]); got != want {
			return nil, fmt.Errorf("the checksum of a length is %x, want %x", got, want)
		}
		if uint64(len(content)) < 16+length {
			return nil, errors.New("the data of a record are cut")
		}
		data, rest := content[12:12+length], content[12+length:]
		if got, want := binary.LittleEndian.Uint32(rest), checksum(data); got != want {
			return nil, fmt.Errorf("the checksum of data is %x, want %x", got, want)
		}
		message := dynamicpb.NewMessage(kind)
		if err := (proto.UnmarshalOptions{}).Unmarshal(data, message); err != nil {
			return nil, err
		}
		if len(message.GetUnknown()) > 0 {
			return nil, fmt.Errorf("an event has unknown fields: %x", message.GetUnknown())
		}
		events, content = append(events, eventOf(message)), rest[4:]
	}
	return events, nil
}

func eventOf(message *dynamicpb.Message) event {
	field := func(of protoreflect.Message, name protoreflect.Name) protoreflect.Value {
		return of.Get(of.Descriptor().Fields().ByName(name))
	}
	found := event{
		Wall: field(message, "wall_time").Float(), Step: field(message, "step").Int(), Version: field(message, "file_version").String(),
	}
	values := field(field(message, "summary").Message(), "value").List()
	for i := range values.Len() {
		value := values.Get(i).Message()
		found.Tag, found.Value = field(value, "tag").String(), float32(field(value, "simple_value").Float())
	}
	return found
}

// checksum is the masked CRC-32C.
func checksum(data []byte) uint32 {
	sum := uint32(math.MaxUint32)
	for _, each := range data {
		sum ^= uint32(each)
		for range 8 {
			sum = sum>>1 ^ 0x82f63b78*(sum&1)
		}
	}
	sum = ^sum
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// eventKind returns the part of tensorflow.Event, of tensorflow/core/util/event.proto and
// tensorflow/core/framework/summary.proto, that scalars need.
func eventKind() (protoreflect.MessageDescriptor, error) {
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, of string) *descriptorpb.FieldDescriptorProto {
		label := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
		if name == "value" {
			label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
		}
		made := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &kind, Label: &label}
		if of != "" {
			made.TypeName = &of
		}
		return made
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("event.proto"), Package: proto.String("tensorflow"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("Event"), Field: []*descriptorpb.FieldDescriptorProto{
				field("wall_time", 1, descriptorpb.FieldDescriptorProto_TYPE_DOUBLE, ""), field("step", 2, descriptorpb.FieldDescriptorProto_TYPE_INT64, ""),
				field("file_version", 3, descriptorpb.FieldDescriptorProto_TYPE_STRING, ""),
				field("summary", 5, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, ".tensorflow.Summary"),
			}},
			{Name: proto.String("Summary"), Field: []*descriptorpb.FieldDescriptorProto{
				field("value", 1, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, ".tensorflow.Value"),
			}},
			{Name: proto.String("Value"), Field: []*descriptorpb.FieldDescriptorProto{
				field("tag", 1, descriptorpb.FieldDescriptorProto_TYPE_STRING, ""), field("simple_value", 2, descriptorpb.FieldDescriptorProto_TYPE_FLOAT, ""),
			}},
		},
	}, nil)
	if err != nil {
		return nil, err
	}
	return file.Messages().ByName("Event"), nil
}
