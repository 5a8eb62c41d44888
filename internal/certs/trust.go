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

// Trust is who the API server is to trust.
type Trust struct {
	// Bundle is what the one who publishes serves by, as PEM.
	Bundle []byte
	// KeepOthers leaves what is published already beside it, as far as it is
	// valid: another replica may still serve by that.
	KeepOthers bool
	// Gone are authorities, as PEM, by which nobody serves any more: they are not kept.
	Gone []byte
	// Now is when validity is judged.
	Now time.Time
}

// beside is how a bundle stands among those that are published.
type beside struct {
	// joins says that it comes to others, by which somebody may serve.
	joins bool
	// shared says that there are others.
	shared bool
	// missing says that it was not there.
	missing bool
}

// over returns what to publish where there is a bundle already.
func (t *Trust) over(there []byte) ([]byte, beside) {
	mine, err := splitBundle(t.Bundle)
	if err != nil {
		return t.Bundle, beside{missing: true}
	}
	// What is no bundle, such as none, holds nothing to keep.
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
