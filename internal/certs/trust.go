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
	// Now is when validity is judged.
	Now time.Time
}

// over returns what to publish where there is a bundle already, and whether
// this bundle joins others there, by which somebody may serve.
func (t *Trust) over(there []byte) (bundle []byte, joins bool) {
	if !t.KeepOthers {
		return t.Bundle, false
	}
	mine, err := splitBundle(t.Bundle)
	if err != nil {
		return t.Bundle, false
	}
	// What is no bundle, such as none, holds nothing to keep.
	published, _ := splitBundle(there)
	has := func(among []*x509.Certificate, one *x509.Certificate) bool {
		return slices.ContainsFunc(among, one.Equal)
	}
	valid := slices.DeleteFunc(slices.Clone(published), func(one *x509.Certificate) bool { return t.Now.After(one.NotAfter) })
	missing := slices.ContainsFunc(mine, func(one *x509.Certificate) bool { return !has(published, one) })
	if !missing && len(valid) == len(published) {
		return there, false
	}
	others := slices.DeleteFunc(valid, func(one *x509.Certificate) bool { return has(mine, one) })
	return joinBundle(append(mine, others...)), missing && len(others) > 0
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
