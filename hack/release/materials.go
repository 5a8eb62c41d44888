// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// writeMaterials writes a bill of materials for each binary.
func (r *release) writeMaterials(ctx context.Context, all []binary) error {
	texts, err := newLicences(ctx)
	if err != nil {
		return err
	}
	for _, binary := range all {
		path := r.binaryPath(binary)
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return fmt.Errorf("what %s was built from: %w", path, err)
		}
		r.compiler = info.GoVersion
		sum, err := checksum(path)
		if err != nil {
			return err
		}
		bom, err := materials(binary, r.source, info, sum, texts)
		if err != nil {
			return fmt.Errorf("bill of materials of %s: %w", path, err)
		}
		content, err := encode(bom)
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.artifact(materialsFile(binary, r.version)), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// materialsFile returns the name of a binary's bill of materials.
func materialsFile(b binary, version string) string { return b.stem(version) + ".cdx.json" }

// materials lists the modules that the linker recorded in the binary. Modules that go.mod only
// requires, or that another platform needs, are not included.
func materials(b binary, s source, info *debug.BuildInfo, sum string, texts *licences) (*cdx.BOM, error) {
	main := cdx.Component{
		BOMRef: purl(info.Main.Path, s.version), Type: cdx.ComponentTypeApplication,
		Name: filepath.Base(info.Path), Version: s.version, PackageURL: purl(info.Main.Path, s.version),
		Licenses:   licensed("Apache-2.0"),
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}},
		Properties: &[]cdx.Property{{Name: "goos", Value: b.platform.os}, {Name: "goarch", Value: b.platform.arch}, {Name: "revision", Value: s.revision}},
	}
	// The standard library has the name under which scanners search for it.
	components := []cdx.Component{library("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "", []string{"BSD-3-Clause"})}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		identifiers, err := texts.of(module.Path, module.Version)
		if err != nil {
			return nil, err
		}
		components = append(components, library(module.Path, module.Version, module.Sum, identifiers))
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, []byte(sourceURL+"#"+b.stem(s.version)+"#"+sum)).URN()
	bom.Metadata = &cdx.Metadata{Timestamp: s.time.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = dependencies(main, components)
	return bom, nil
}

// licensed returns licences by their SPDX identifiers.
func licensed(identifiers ...string) *cdx.Licenses {
	all := make(cdx.Licenses, len(identifiers))
	for i, identifier := range identifiers {
		all[i].License = &cdx.License{ID: identifier}
	}
	return &all
}

func library(path, version, sum string, identifiers []string) cdx.Component {
	component := cdx.Component{
		BOMRef: purl(path, version), Type: cdx.ComponentTypeLibrary, Name: path, Version: version,
		Scope: cdx.ScopeRequired, PackageURL: purl(path, version), Licenses: licensed(identifiers...),
	}
	if sum != "" {
		component.Properties = &[]cdx.Property{{Name: "go.sum", Value: sum}}
	}
	return component
}

// dependencies returns a graph in which the program depends on all components. A binary does not
// record the dependencies between libraries.
func dependencies(main cdx.Component, components []cdx.Component) *[]cdx.Dependency {
	refs := make([]string, 0, len(components))
	for i := range components {
		refs = append(refs, components[i].BOMRef)
	}
	return &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
}

// purl returns the package URL of a Go module.
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + url.QueryEscape(version)
}

func encode(bom *cdx.BOM) ([]byte, error) {
	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false)
	if err := encoder.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("encode bill of materials: %w", err)
	}
	return out.Bytes(), nil
}
