// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package configfile decodes the configuration file of the programs, and
// describes it by a JSON schema for the chart's values. One description of
// each field, from the types of the API package and the rules here, serves both.
package configfile
