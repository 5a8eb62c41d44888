// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// readRecords reads the named columns of a CSV file, row by row.
func readRecords(path string, columns ...string) ([][]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a table: %w", err)
	}
	defer file.Close()
	records, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	var places []int
	for _, column := range columns {
		at := slices.Index(records[0], column)
		if at < 0 {
			return nil, fmt.Errorf("%s has no column %s", path, column)
		}
		places = append(places, at)
	}
	rows := make([][]string, 0, len(records)-1)
	for _, record := range records[1:] {
		row := make([]string, len(places))
		for i, at := range places {
			row[i] = record[at]
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// readTable reads the named columns of a CSV file as numbers.
func readTable(path string, columns ...string) ([][]float64, error) {
	records, err := readRecords(path, columns...)
	if err != nil {
		return nil, err
	}
	rows := make([][]float64, 0, len(records))
	for line, record := range records {
		row := make([]float64, len(record))
		for i, text := range record {
			if row[i], err = strconv.ParseFloat(text, 64); err != nil {
				return nil, fmt.Errorf("%s, line %d, column %s: %q is no number", path, line+2, columns[i], text)
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}
