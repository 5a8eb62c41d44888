// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
)

// Limits of the files that are read: before anything is sized by them.
const (
	maxRows  = 100_000
	maxBytes = 64 << 20
)

// readRecords reads the named columns of a CSV file, row by row.
func readRecords(path string, columns ...string) ([][]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a table: %w", err)
	}
	// Nothing was written.
	defer func() { _ = file.Close() }()
	reader := csv.NewReader(io.LimitReader(file, maxBytes))
	reader.ReuseRecord = true
	header, err := reader.Read()
	if err != nil {
		return nil, fmt.Errorf("reading the header of %s: %w", path, err)
	}
	var places []int
	for _, column := range columns {
		at := slices.Index(header, column)
		if at < 0 {
			return nil, fmt.Errorf("%s has no column %s: its header must name %v", path, column, columns)
		}
		places = append(places, at)
	}
	var rows [][]string
	for {
		record, err := reader.Read()
		switch {
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", path, err)
		case len(rows) == maxRows:
			return nil, fmt.Errorf("%s has more than %d rows: split it", path, maxRows)
		}
		row := make([]string, len(places))
		for i, at := range places {
			row[i] = record[at]
		}
		rows = append(rows, row)
	}
}

// readTable reads the named columns of a CSV file as numbers of 0 or more.
func readTable(path string, columns ...string) ([][]float64, error) {
	records, err := readRecords(path, columns...)
	if err != nil {
		return nil, err
	}
	rows := make([][]float64, 0, len(records))
	for line, record := range records {
		row := make([]float64, len(record))
		for i, text := range record {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil || !(value >= 0) || math.IsInf(value, 0) {
				return nil, fmt.Errorf("%s, line %d: %s is %q: must be a number of 0 or more", path, line+2, columns[i], text)
			}
			row[i] = value
		}
		rows = append(rows, row)
	}
	return rows, nil
}
