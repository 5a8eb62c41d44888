// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Trust describes which authorities must be published.
type Trust struct {
	// Bundle is the authority of the publishing server, as PEM.
	Bundle []byte
	// KeepOthers keeps the published authorities that are still valid, because other replicas may
	// serve with them.
	KeepOthers bool
	// Gone are authorities that no replica serves with anymore, as PEM. They are removed.
	Gone []byte
	// Now is the time at which certificates must be valid.
	Now time.Time
}

// beside describes a bundle in relation to the published ones.
type beside struct {
	// joins reports whether the bundle is added to others, which may still serve.
	joins bool
	// shared reports whether there are others.
	shared bool
	// missing reports whether the bundle was not published.
	missing bool
}

// over returns what must be published in place of an existing bundle.
func (t *Trust) over(there []byte) ([]byte, beside) {
	mine, err := splitBundle(t.Bundle)
	if err != nil {
		return t.Bundle, beside{missing: true}
	}
	// A value that does not decode, or is empty, has nothing to keep.
	published, _ := splitBundle(there)
	has := func(among []*x509.Certificate, one *x509.Certificate) bool {
		return slices.ContainsFunc(among, one.Equal)
	}
	missing := slices.ContainsFunc(mine, func(one *x509.Certificate) bool { return !has(published, one) })
	if !t.KeepOthers {
		return t.Bundle, beside{missing: missing}
	}
	gone, _ := splitBundle(t.Gone)
	kept := slices.DeleteFunc(slices.Clone(published), func(one *x509.Certificate) bool {
		return !has(mine, one) && has(gone, one) || t.Now.After(one.NotAfter)
	})
	others := slices.DeleteFunc(slices.Clone(kept), func(one *x509.Certificate) bool { return has(mine, one) })
	stands := beside{joins: missing && len(others) > 0, shared: len(others) > 0, missing: missing}
	if !missing && len(kept) == len(published) {
		return there, stands
	}
	return joinBundle(append(mine, others...)), stands
}

// splitBundle returns the certificates of a bundle.
func splitBundle(bundle []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		parsed, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("decoding a certificate: %w", err)
		}
		all = append(all, parsed)
	}
	if len(all) == 0 {
		return nil, errors.New("it holds no certificate in PEM")
	}
	return all, nil
}

func joinBundle(all []*x509.Certificate) []byte {
	var bundle bytes.Buffer
	for _, one := range all {
		bundle.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one.Raw}))
	}
	return bundle.Bytes()
}
