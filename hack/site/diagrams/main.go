// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command diagrams renders each D2 file of a folder as an SVG next to it. Files whose names begin
// with an underscore are only imported by others.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"oss.terrastruct.com/d2/d2graph"
	"oss.terrastruct.com/d2/d2layouts/d2dagrelayout"
	"oss.terrastruct.com/d2/d2layouts/d2elklayout"
	"oss.terrastruct.com/d2/d2lib"
	"oss.terrastruct.com/d2/d2renderers/d2svg"
	"oss.terrastruct.com/d2/d2themes/d2themescatalog"
	"oss.terrastruct.com/d2/lib/log"
	"oss.terrastruct.com/d2/lib/textmeasure"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: diagrams FOLDER")
		os.Exit(2)
	}
	if err := drawAll(log.WithDefault(context.Background()), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "diagrams:", err)
		os.Exit(1)
	}
}

func drawAll(ctx context.Context, folder string) error {
	sources, err := filepath.Glob(filepath.Join(folder, "*.d2"))
	if err != nil {
		return fmt.Errorf("looking for diagrams in %q: %w", folder, err)
	}
	if len(sources) == 0 {
		return fmt.Errorf("there is no *.d2 in %q", folder)
	}
	var failed []error
	for _, source := range sources {
		if strings.HasPrefix(filepath.Base(source), "_") {
			continue
		}
		if err := draw(ctx, source); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", source, err))
		}
	}
	return errors.Join(failed...)
}

// draw writes the SVG of a source. The SVG contains no time and no version of the renderer, so that
// it changes only with its content.
func draw(ctx context.Context, source string) error {
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	ruler, err := textmeasure.NewRuler()
	if err != nil {
		return fmt.Errorf("loading fonts: %w", err)
	}
	var (
		pad     int64 = 12
		scale         = 0.8 // of text of 16 pixels
		omitted       = true
	)
	options := &d2svg.RenderOpts{
		Pad:         &pad,
		Scale:       &scale, // Without a scale, every picture fills the page.
		ThemeID:     &d2themescatalog.NeutralDefault.ID,
		DarkThemeID: &d2themescatalog.DarkMauve.ID,
		OmitVersion: &omitted,
	}
	diagram, _, err := d2lib.Compile(ctx, string(text), &d2lib.CompileOptions{
		Ruler:          ruler,
		LayoutResolver: layoutNamed,
		InputPath:      filepath.Base(source),
		FS:             os.DirFS(filepath.Dir(source)),
	}, options)
	if err != nil {
		return err
	}
	picture, err := d2svg.Render(diagram, options)
	if err != nil {
		return fmt.Errorf("drawing: %w", err)
	}
	return os.WriteFile(strings.TrimSuffix(source, ".d2")+".svg", append(picture, '\n'), 0o644)
}

// layoutNamed returns the layout engine that a source names in vars.d2-config.
func layoutNamed(engine string) (d2graph.LayoutGraph, error) {
	switch engine {
	case "", "elk":
		return d2elklayout.DefaultLayout, nil
	case "dagre":
		return d2dagrelayout.DefaultLayout, nil
	}
	return nil, fmt.Errorf("layout-engine %q is not known; use elk or dagre", engine)
}
