// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"opendilab.org/di-orchestrator/internal/testkit"
)

// shellWords splits a command line into commands of words, as a shell does with
// quotes, pipes and redirections, as far as examples use them.
func shellWords(line string) [][]string {
	var commands [][]string
	var words []string
	word, quoted, inWord := strings.Builder{}, rune(0), false
	endWord := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	for _, letter := range line {
		switch {
		case quoted != 0 && letter == quoted:
			quoted = 0
		case quoted != 0:
			word.WriteRune(letter)
		case letter == '\'' || letter == '"':
			quoted, inWord = letter, true
		case letter == ' ' || letter == '\t':
			endWord()
		case strings.ContainsRune("|&;<>()", letter):
			endWord()
			commands, words = append(commands, words), nil
		case letter == '#' && !inWord:
			endWord()
			return append(commands, words)
		default:
			word.WriteRune(letter)
			inWord = true
		}
	}
	endWord()
	return append(commands, words)
}

// invocations returns the arguments of each kubectl di of a line.
func invocations(line string) [][]string {
	var found [][]string
	for _, words := range shellWords(line) {
		for i := range words {
			if words[i] == "kubectl" && i+1 < len(words) && words[i+1] == "di" {
				found = append(found, words[i+2:])
				break
			}
		}
	}
	return found
}

// parse says what is wrong with the arguments of kubectl di, as far as that can
// be told without doing what they say.
func parse(args []string) error {
	root := newCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard})
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
	root := newCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard})
	for _, command := range root.Commands() {
		found := 0
		for line := range strings.Lines(command.Example) {
			for _, args := range invocations(strings.TrimSpace(line)) {
				if err := parse(args); err != nil {
					t.Errorf("%s: %s: %v", command.Name(), strings.TrimSpace(line), err)
				}
				if called, _, err := root.Find(args); err == nil && called == command {
					found++
				}
			}
		}
		if found == 0 {
			t.Errorf("%s has no example of itself", command.Name())
		}
		if command.Short == "" || strings.HasSuffix(command.Short, ".") {
			t.Errorf("%s: its short description is %q", command.Name(), command.Short)
		}
	}
}

// placeholders stand for what a reader puts in.
func placeholders(words []string) []string {
	alternatives, placeholder := regexp.MustCompile(`\|.*`), regexp.MustCompile(`^[A-Z]+(\.\.\.)?$`)
	var filled []string
	for _, word := range words {
		word = alternatives.ReplaceAllString(strings.Trim(word, "[]"), "")
		switch {
		case word == "N" || word == "COUNT":
			word = "1"
		case word == "URL":
			word = "http://localhost"
		case placeholder.MatchString(word):
			word = strings.ToLower(strings.TrimSuffix(word, "..."))
		}
		filled = append(filled, word)
	}
	return filled
}

// mention is one kubectl di in a page.
type mention struct {
	line int
	text string
	// inText says that it is in a sentence, which may name a command without
	// its arguments.
	inText bool
}

// mentions returns each kubectl di of a page.
func mentions(page string) []mention {
	var found []mention
	code, number, fenced := regexp.MustCompile("`(kubectl di [^`]+)`"), 0, false
	for line := range strings.Lines(page) {
		number++
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fenced = !fenced
		case fenced || strings.HasPrefix(line, "    "):
			if strings.Contains(line, "kubectl di ") {
				found = append(found, mention{number, strings.TrimPrefix(trimmed, "$ "), false})
			}
		default:
			for _, match := range code.FindAllStringSubmatch(line, -1) {
				found = append(found, mention{number, match[1], true})
			}
		}
	}
	return found
}

func TestEveryCommandInTheDocsIsRight(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(testkit.Root(), "docs", "*.md"))
	must(t, err)
	checked := 0
	for _, path := range append(pages, filepath.Join(testkit.Root(), "README.md")) {
		for _, said := range mentions(readFile(t, path)) {
			lines := invocations(said.text)
			if said.inText {
				lines = [][]string{placeholders(strings.Fields(strings.ReplaceAll(said.text, `\|`, "|"))[2:])}
			}
			for _, args := range lines {
				checked++
				if err := parseMention(args, said.inText); err != nil {
					t.Errorf("%s:%d: %s: %v", filepath.Base(path), said.line, said.text, err)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d commands were found in the docs", checked)
	}
}

// parseMention parses a command that a page names. In a sentence it may be
// without arguments.
func parseMention(args []string, inText bool) error {
	if inText && args[0] == "command" {
		return nil
	}
	err := parse(args)
	if err != nil && inText && len(args) == 1 && isCommand(args[0]) {
		return nil
	}
	return err
}

func isCommand(name string) bool {
	root := newCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard})
	found, _, err := root.Find([]string{name})
	return err == nil && found != root
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
		"kubectl di restart pong":                                          false,
		"kubectl di options all":                                           false,
	} {
		found := invocations(line)
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
