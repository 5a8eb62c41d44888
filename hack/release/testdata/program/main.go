// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command program stands in for a program that takes long to compile.
package main

import "fmt"

// version is stamped by the linker.
var version = "dev"

func main() { fmt.Println(version) }
