// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"opendilab.org/di-orchestrator/internal/netlimit"
)

const (
	// batchBytes is about how much is converted before other requests may proceed. It takes about a
	// millisecond, so the cost of switching is small.
	batchBytes = 128 << 10
	// maxNamed is how many of the failed objects an answer names.
	maxNamed = 10
	// maxReasonBytes is the maximum length of each reason. A reason quotes the object.
	maxReasonBytes = 500
	// maxStackBytes is the maximum length of the stack of a panic.
	maxStackBytes = 4096
)

// Result is the result of converting one object.
type Result string

// The results.
const (
	// ResultConverted means that the object was converted from one version to the other.
	ResultConverted Result = "converted"
	// ResultUnchanged means that the object already had the desired version.
	ResultUnchanged Result = "unchanged"
	// ResultFailed means that the object was not converted; the answer contains the reason.
	ResultFailed Result = "failed"
)

// OtherVersion stands for any version that the endpoint does not know.
const OtherVersion = "other"

// Conversion describes the conversion of one object. From and To are versions of this group, such
// as v1alpha1, or OtherVersion.
type Conversion struct {
	From, To string
	Result   Result
}

// Outcome summarizes a review.
type Outcome struct {
	// Objects is how many objects the review has.
	Objects int
	// Conversions counts the objects by their conversion.
	Conversions map[Conversion]int
	// Panics counts the objects at which the mapping panicked. They are among those that failed.
	Panics int
	// Panicked are the first of these panics, at most ten.
	Panicked []Panic
}

// Panic is a panic of the mapping.
type Panic struct {
	// Object names the object by its index in the review, its kind, namespace and name.
	Object string
	// Namespace and Name are the object's. They are empty if they cannot be read.
	Namespace, Name string
	// Cause is the value of the panic.
	Cause string
	// Stack is the stack of the panic.
	Stack string
}

func (o *Outcome) add(other *Outcome) {
	o.Objects += other.Objects
	for conversion, count := range other.Conversions {
		o.Conversions[conversion] += count
	}
	o.Panics += other.Panics
	o.Panicked = firstOf(append(o.Panicked, other.Panicked...))
}

// firstOf returns the first maxNamed entries.
func firstOf[T any](entries []T) []T {
	return entries[:min(len(entries), maxNamed)]
}

// batch is a part of a review's objects. They are converted sequentially and in place.
type batch struct {
	// first is the index of the batch's first object in the review.
	first   int
	objects [][]byte
	bytes   int
	outcome Outcome
	// reasons are why the first objects failed; failed counts all failed objects.
	reasons []string
	failed  int
	// invalid means that an object, and therefore the review, was not valid JSON.
	invalid bool
}

// batches splits the review's objects into batches.
func (r *review) batches() []*batch {
	var cut []*batch
	size, first := 0, 0
	for i, object := range r.objects {
		size += len(object)
		if size >= batchBytes || i == len(r.objects)-1 {
			cut = append(cut, &batch{
				first: first, objects: r.objects[first : i+1], bytes: size, outcome: Outcome{Conversions: map[Conversion]int{}},
			})
			size, first = 0, i+1
		}
	}
	return cut
}

// answer converts the objects and returns the ConversionReview with the response. It fails if the
// review is not valid JSON, or if its sender disconnects.
func (h *Handler) answer(ctx context.Context, asked *review) (*answer, error) {
	_, wrong := knownVersion(asked.desiredVersion)
	batches := asked.batches()
	if err := h.convertAll(ctx, batches, asked.desiredVersion); err != nil {
		return nil, err
	}
	whole := batch{outcome: Outcome{Conversions: map[Conversion]int{}}}
	for _, part := range batches {
		whole.outcome.add(&part.outcome)
		whole.reasons = firstOf(append(whole.reasons, part.reasons...))
		whole.failed += part.failed
		whole.invalid = whole.invalid || part.invalid
	}
	h.observer.Reviewed(ctx, whole.outcome)
	switch {
	case whole.invalid:
		return nil, errInvalidJSON
	case wrong != nil:
		return failure(asked.uid, fmt.Sprintf("request.desiredAPIVersion: %v", wrong)), nil
	case whole.failed > 0:
		return failure(asked.uid, whole.message()), nil
	}
	return success(asked.uid, asked.objects), nil
}

// convertAll converts the batches concurrently with those of other reviews. Each batch waits for a
// processor, so a single object waits for one batch of a list and not for the whole list.
func (h *Handler) convertAll(ctx context.Context, batches []*batch, apiVersion string) error {
	var group errgroup.Group
	for i, part := range batches {
		done, err := h.turn(ctx, part)
		if err != nil {
			// Batches in progress must not outlive the request because they use its memory.
			_ = group.Wait()
			return err
		}
		if i < len(batches)-1 {
			group.Go(func() error {
				defer done()
				return part.convert(ctx, h.convert, apiVersion)
			})
			continue
		}
		// The last batch, which is usually the only one, is converted here. Waking another
		// goroutine would cost as much as converting a small job.
		err = part.convert(ctx, h.convert, apiVersion)
		done()
		if err != nil {
			_ = group.Wait()
			return err
		}
	}
	return group.Wait()
}

// turn waits until a batch may be converted, and returns the function that releases its slot. A
// large batch takes none of the common slots, because it may take a hundred times as long as the
// others.
func (h *Handler) turn(ctx context.Context, part *batch) (done func(), err error) {
	turns := h.slots
	if part.bytes > 2*batchBytes {
		turns = h.largeSlot
	}
	if err := turns.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("waiting for other objects: %w", err)
	}
	return func() { turns.Release(1) }, nil
}

// converter converts an object to a version.
type converter func(raw []byte, apiVersion string) ([]byte, error)

// convert replaces the objects by their converted form. It returns an error early if the sender
// disconnects.
func (b *batch) convert(ctx context.Context, convert converter, apiVersion string) error {
	for i, raw := range b.objects {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("the sender has left: %w", err)
		}
		if !valid(raw) {
			b.invalid = true
			return nil
		}
		b.convertOne(i, convert, apiVersion)
	}
	return nil
}

// convertOne converts one object, which is valid JSON.
func (b *batch) convertOne(i int, convert converter, apiVersion string) {
	raw := b.objects[i]
	done := Conversion{From: versionLabel(apiVersionOf(raw)), To: versionLabel(apiVersion), Result: ResultConverted}
	converted, fault, err := contained(convert, raw, apiVersion)
	switch {
	case err != nil:
		done.Result = ResultFailed
		b.fail(b.first+i, raw, fault, err)
	case done.From == done.To:
		done.Result = ResultUnchanged
	}
	b.outcome.Objects++
	b.outcome.Conversions[done]++
	b.objects[i] = converted
}

// fail records why an object was not converted.
func (b *batch) fail(place int, raw []byte, fault *Panic, err error) {
	b.failed++
	if fault != nil {
		b.outcome.Panics++
	}
	if len(b.reasons) == maxNamed {
		return
	}
	name := fmt.Sprintf("request.objects[%d]%s", place, describe(raw))
	b.reasons = append(b.reasons, shorten(fmt.Sprintf("%s: %v", name, err), maxReasonBytes))
	if fault != nil {
		fault.Object = shorten(name, maxReasonBytes)
		_, fault.Namespace, fault.Name = identify(raw)
		b.outcome.Panicked = append(b.outcome.Panicked, *fault)
	}
}

// message returns why the review failed.
func (b *batch) message() string {
	message := strings.Join(b.reasons, "; ")
	if more := b.failed - len(b.reasons); more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	return message
}

// contained turns a panic into an error. A bug in the mapping must fail one answer, not the process
// that answers for all objects.
func contained(convert converter, raw []byte, apiVersion string) (converted []byte, fault *Panic, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			text := shorten(fmt.Sprint(cause), maxReasonBytes)
			fault = &Panic{Cause: text, Stack: shorten(string(debug.Stack()), maxStackBytes)}
			converted, err = nil, fmt.Errorf("panic while converting: %s", text)
		}
	}()
	if err := checkStorable(raw); err != nil {
		return nil, nil, err
	}
	converted, err = convert(raw, apiVersion)
	return converted, nil, err
}

// checkStorable rejects an object that no API server stores, before its conversion takes memory and
// time from other reviews.
func checkStorable(raw []byte) error {
	if len(raw) > maxObjectBytes {
		return fmt.Errorf("the object has %d bytes; it must have at most %d, of which etcd takes a quarter", len(raw), maxObjectBytes)
	}
	if len(raw) < maxObjectTasks {
		// Each task and each value takes at least one byte.
		return nil
	}
	if values := netlimit.Values(raw); values > maxObjectValues {
		return fmt.Errorf("the object has %d JSON values; it must have at most %d, more than etcd takes", values, maxObjectValues)
	}
	inSpec := valuesOf(valuesOf(raw, "spec")[0], fieldTasks, fieldExtended)
	for _, tasks := range [][]byte{inSpec[0], valuesOf(inSpec[1], fieldTasks)[0]} {
		if count := countItems(tasks); count > maxObjectTasks {
			return fmt.Errorf("the object has %d tasks; it must have at most %d", count, maxObjectTasks)
		}
	}
	return nil
}

// versionLabel returns the version of an apiVersion of this group, and
// OtherVersion for any other.
func versionLabel(apiVersion string) string {
	if version, err := knownVersion(apiVersion); err == nil {
		return version
	}
	return OtherVersion
}

// apiVersionOf returns an object's apiVersion. It reads no further than necessary: API servers
// write apiVersion as the first member.
func apiVersionOf(raw []byte) string {
	s := scanner{data: raw}
	if !s.open('{') {
		return ""
	}
	for s.more('}') {
		key, value := s.key(), s.value()
		if key == "apiVersion" {
			return text(value)
		}
	}
	return ""
}

// describe returns the kind, namespace and name of an object for an error.
func describe(raw []byte) string {
	kind, namespace, name := identify(raw)
	if kind+namespace+name == "" {
		return ""
	}
	return fmt.Sprintf(" (%s %s/%s)", kind, namespace, name)
}

// identify returns the kind, namespace and name of an object, each empty if it cannot be read. It
// parses nothing else because the object may be too large to be converted.
func identify(raw []byte) (kind, namespace, name string) {
	top := valuesOf(raw, "kind", "metadata")
	names := valuesOf(top[1], "namespace", "name")
	return named(top[0]), named(names[0]), named(names[1])
}

// named returns the content of a JSON string. It truncates a long one to about the length of a
// reason.
func named(raw []byte) string {
	if len(raw) > 2*maxReasonBytes {
		raw = append(slices.Clip(raw[:2*maxReasonBytes]), '"')
	}
	return text(raw)
}

// valuesOf returns the values of some members of an object. The last member with a name counts.
func valuesOf(raw []byte, keys ...string) [][]byte {
	found := make([][]byte, len(keys))
	s := scanner{data: raw}
	if !s.open('{') {
		return found
	}
	for s.more('}') {
		key, value := s.key(), s.value()
		if i := slices.Index(keys, key); i >= 0 {
			found[i] = value
		}
	}
	return found
}

// shorten truncates a text to a number of bytes and appends "..." if it was truncated.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "..."
}

// success returns the answer with all objects in the desired version.
func success(uid []byte, objects [][]byte) *answer {
	return envelope(uid, objects, []byte(`{"status":"Success"}`))
}

// failure returns the answer without objects and with the reason.
func failure(uid []byte, message string) *answer {
	return envelope(uid, nil, object{{"status", quote("Failure")}, {"message", quote(message)}}.bytes())
}

func envelope(uid []byte, objects [][]byte, result []byte) *answer {
	head := `{"kind":"ConversionReview","apiVersion":"` + apiextensionsv1.SchemeGroupVersion.String() +
		`","response":{"uid":` + string(uid) + `,"convertedObjects":[`
	return &answer{head: []byte(head), objects: objects, tail: []byte(`],"result":` + string(result) + `}}`)}
}
