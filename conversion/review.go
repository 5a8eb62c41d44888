// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// maxObjects bounds the cost of a review of tiny objects, which its size in bytes does not. The
// smallest job that an API server stores has about 400 bytes.
const maxObjects = 500_000

var (
	errInvalidJSON = errors.New("the body is not valid JSON")
	// ErrTooManyObjects means that a review has more objects than are converted at a time.
	ErrTooManyObjects = fmt.Errorf("request.objects: more than %d", maxObjects)
)

// review is the request of a ConversionReview. Its objects are slices of the body and not yet known
// to be valid JSON: the batches validate them concurrently. Everything around the objects has been
// validated, so the body is valid if and only if the objects are.
type review struct {
	uid            []byte
	desiredVersion string
	objects        [][]byte
}

// parseReview reads a ConversionReview.
func parseReview(body []byte) (*review, error) {
	cut := &cutter{scanner: scanner{data: body}}
	var asked *review
	var kind, apiVersion string
	err := cut.members(func(key string) error {
		var err error
		switch key {
		case "kind":
			kind, _, err = cut.text()
		case "apiVersion":
			apiVersion, _, err = cut.text()
		case "request":
			if asked != nil {
				return errors.New("request: given twice")
			}
			if cut.peek() == '{' {
				asked = &review{}
				return asked.read(cut)
			}
			err = cut.null()
		default:
			_, err = cut.valid()
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case cut.peek() != 0 || cut.at < len(body):
		return nil, errInvalidJSON
	case kind != "ConversionReview" || apiVersion != apiextensionsv1.SchemeGroupVersion.String():
		return nil, fmt.Errorf("the body is not a ConversionReview of %s", apiextensionsv1.SchemeGroupVersion)
	case asked == nil:
		return nil, errors.New("request: required")
	case asked.uid == nil:
		return nil, errors.New("request.uid: required")
	}
	return asked, nil
}

// read reads the request. A duplicate member is ambiguous and is rejected.
func (r *review) read(cut *cutter) error {
	seen := map[string]bool{}
	return cut.members(func(key string) error {
		if seen[key] && (key == "uid" || key == "desiredAPIVersion" || key == "objects") {
			return fmt.Errorf("request.%s: given twice", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "uid":
			_, r.uid, err = cut.text()
		case "desiredAPIVersion":
			r.desiredVersion, _, err = cut.text()
		case "objects":
			r.objects, err = cut.elements()
		default:
			_, err = cut.valid()
		}
		if err != nil && !errors.Is(err, errInvalidJSON) {
			return fmt.Errorf("request.%s: %w", key, err)
		}
		return err
	})
}

// cutter splits JSON that has not been validated. It validates what it steps over, while a scanner
// relies on valid input.
type cutter struct {
	scanner
}

// members calls the function for each member of an object. The function must step over the value.
func (c *cutter) members(visit func(key string) error) error {
	if !c.open('{') {
		return errors.New("the body is not a JSON object")
	}
	if c.open('}') {
		return nil
	}
	for {
		key, raw, err := c.text()
		if err != nil || raw == nil || !c.open(':') {
			return errInvalidJSON
		}
		if err := visit(key); err != nil {
			return err
		}
		if c.open('}') {
			return nil
		}
		if !c.open(',') {
			return errInvalidJSON
		}
	}
}

// elements splits an array and validates everything but the elements. null has no elements.
func (c *cutter) elements() ([][]byte, error) {
	if !c.open('[') {
		return nil, c.null()
	}
	if c.open(']') {
		return nil, nil
	}
	var elements [][]byte
	for {
		if len(elements) == maxObjects {
			return nil, ErrTooManyObjects
		}
		c.peek()
		elements = append(elements, c.skipValue())
		if c.open(']') {
			return elements, nil
		}
		if !c.open(',') {
			return nil, errInvalidJSON
		}
	}
}

// valid returns the next value after validating it.
func (c *cutter) valid() ([]byte, error) {
	c.peek()
	value := c.skipValue()
	if !valid(value) {
		return nil, errInvalidJSON
	}
	return value, nil
}

// null steps over null, which means that the value is not set.
func (c *cutter) null() error {
	value, err := c.valid()
	if err == nil && string(value) != "null" {
		err = errors.New("of the wrong type")
	}
	return err
}

// text reads a string, and returns its content and its raw bytes. It returns neither for null.
func (c *cutter) text() (content string, raw []byte, err error) {
	if c.peek() != '"' {
		return "", nil, c.null()
	}
	raw, err = c.valid()
	return text(raw), raw, err
}
