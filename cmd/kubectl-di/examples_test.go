// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// invocations returns the arguments of each kubectl di command in a shell text.
func invocations(t *testing.T, text string) [][]string {
	t.Helper()
	file, err := syntax.NewParser(syntax.RecoverErrors(100)).Parse(strings.NewReader(text), "")
	expect.NoError(t, err)
	var found [][]string
	syntax.Walk(file, func(node syntax.Node) bool {
		call, isCall := node.(*syntax.CallExpr)
		if !isCall || len(call.Args) < 2 || call.Args[0].Lit() != "kubectl" {
			return true
		}
		var words []string
		for _, word := range call.Args {
			text, err := expand.Literal(nil, word)
			expect.NoError(t, err)
			words = append(words, text)
		}
		if words[1] == "di" {
			found = append(found, words[2:])
		}
		return true
	})
	return found
}

// parse parses the arguments of kubectl di without running the command.
func parse(args []string) error {
	root := newCommand(genericiooptions.NewTestIOStreamsDiscard())
	root.InitDefaultHelpFlag()
	command, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	command.InitDefaultHelpFlag()
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	if help, err := command.Flags().GetBool("help"); err != nil || help {
		return err
	}
	return command.ValidateArgs(command.Flags().Args())
}

func TestEveryCommandHasExamplesThatAreRight(t *testing.T) {
	t.Parallel()
	root := newCommand(genericiooptions.NewTestIOStreamsDiscard())
	for _, command := range listedCommands(root) {
		found := 0
		for line := range strings.Lines(command.Example) {
			for _, args := range invocations(t, line) {
				if err := parse(args); err != nil {
					t.Errorf("%s: %s: %v", command.Name(), strings.TrimSpace(line), err)
				}
				if called, _, err := root.Find(args); err == nil && (called == command || called.Parent() == command) {
					found++
				}
			}
		}
		if found == 0 {
			t.Errorf("%s has no example of itself", command.CommandPath())
		}
		if command.Short == "" || strings.HasSuffix(command.Short, ".") {
			t.Errorf("%s: its short description is %q", command.Name(), command.Short)
		}
	}
}

func TestEveryCommandInTheDocsIsRight(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(testkit.Root(), "docs", "*.md"))
	expect.NoError(t, err)
	code := regexp.MustCompile("(?ms)^```\\w*\n(.*?)^```$|^    ([^\n]*kubectl di [^\n]*)$")
	inText := regexp.MustCompile("`kubectl di ([a-z-]+)[^`]*`")
	checked := 0
	for _, path := range append(pages, filepath.Join(testkit.Root(), "README.md")) {
		for _, named := range inText.FindAllStringSubmatch(readFile(t, path), -1) {
			found, _, err := newCommand(genericiooptions.NewTestIOStreamsDiscard()).Find(named[1:])
			if (err != nil || !found.HasParent()) && named[1] != "command" {
				t.Errorf("%s: %s: there is no such command", filepath.Base(path), named[0])
			}
		}
		for _, block := range code.FindAllStringSubmatch(readFile(t, path), -1) {
			for line := range strings.Lines(block[1] + block[2]) {
				line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
				if !strings.HasPrefix(line, "kubectl") && !strings.Contains(line, "| kubectl di") {
					continue
				}
				for _, args := range invocations(t, line) {
					checked++
					if err := parse(args); err != nil {
						t.Errorf("%s: %s: %v", filepath.Base(path), line, err)
					}
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d commands were found in the docs", checked)
	}
}

func TestWrongCommandsAreFoundInDocs(t *testing.T) {
	t.Parallel()
	for line, right := range map[string]bool{
		"kubectl di scale pong --replicas 5 | cat":                         true,
		"kubectl di add collectors cartpole --replicas 2 && echo":          true,
		`kubectl di resume pong -o jsonpath='{.metadata.name}'`:            true,
		"kubectl get tfjob mnist -o yaml | kubectl di convert -f - --nope": false,
		"kubectl di skale pong":                                            false,
		"kubectl di scale pong --replica":                                  false,
		"kubectl di scale pong other":                                      false,
		"kubectl di restart pong":                                          true,
		"kubectl di options all":                                           false,
	} {
		found := invocations(t, line)
		if len(found) != 1 {
			t.Errorf("%s: found %v", line, found)
			continue
		}
		if err := parse(found[0]); (err == nil) != right {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestAnUnknownCommandIsAnsweredByTheOneThatMayBeMeant(t *testing.T) {
	t.Parallel()
	got := kubectlDI(t, "", "sumbit", "-f", "job.yaml")
	if got.code != 2 || !strings.Contains(got.stderr, `unknown command "sumbit": did you mean submit?`) {
		t.Errorf("got %+v", got)
	}
}

func TestTheReferenceIsOfTheCommands(t *testing.T) {
	t.Parallel()
	got := kubectlDI(t, "", "reference")
	if want := readFile(t, filepath.Join(testkit.Root(), "docs", "reference", "kubectl-di.md")); got.code != 0 || got.stdout != want {
		t.Error("docs/reference/kubectl-di.md is not what the commands say: run make generate")
	}
}

func TestCompletionOfEveryShellIsPrinted(t *testing.T) {
	t.Parallel()
	for shell, want := range map[string]string{
		"bash": "__start_kubectl-di", "zsh": "#compdef kubectl-di", "fish": "complete -c kubectl-di", "powershell": "Register-ArgumentCompleter",
		"kubectl": `exec kubectl-di __complete "$@"`,
	} {
		if got := kubectlDI(t, "", "completion", shell); got.code != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: exit code %d, %s", shell, got.code, got.stderr)
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "tcsh"}, {"completion", "bash", "--install"}} {
		if got := kubectlDI(t, "", args...); got.code != 2 || got.stdout != "" {
			t.Errorf("%v: got %+v", args, got)
		}
	}
}
