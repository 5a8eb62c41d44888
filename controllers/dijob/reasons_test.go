// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// critic is the recorder of all specs. It fails a spec if the operator records an Event that
// docs/events.md does not list, or one whose condition the API server does not have yet.
type critic struct {
	documented map[string]testkit.DocumentedEvent
}

func newCritic() *critic {
	GinkgoHelper()
	documented := specs.Must(testkit.DocumentedEvents())
	Expect(documented).NotTo(BeEmpty())
	return &critic{documented: documented}
}

// Eventf implements events.EventRecorder.
func (c *critic) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	defer GinkgoRecover()
	event := fmt.Sprintf("%s %s: "+note, append([]any{kind, reason}, args...)...)
	Expect(c.documented).To(HaveKey(reason), event)
	Expect(c.documented[reason].Types).To(ContainElement(kind), event)
	wanted := c.documented[reason].Conditions
	told, isJob := regarding.(*v2alpha1.DIJob)
	if len(wanted) == 0 || !isJob {
		return
	}
	job := &v2alpha1.DIJob{}
	err := shared.api.Get(context.Background(), client.ObjectKeyFromObject(told), job)
	if apierrors.IsNotFound(err) {
		return
	}
	Expect(err).NotTo(HaveOccurred())
	Expect(slices.ContainsFunc(job.Status.Conditions, func(condition v2alpha1.DIJobCondition) bool {
		return slices.Contains(wanted, condition.Type) && condition.Reason == reason
	})).To(BeTrue(), "%s: none of %v has this reason: %+v", event, wanted, job.Status.Conditions)
}

// constants returns the names of the API constants of reasons and conditions, by value. An Event may have
// the name of a condition as its reason.
func constants(t *testing.T) (reasons, conditions map[string]string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(testkit.Root(), "apis", "v2alpha1", "constants.go"), nil, parser.SkipObjectResolution)
	expect.NoError(t, err)
	reasons, conditions = map[string]string{}, map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, isValue := node.(*ast.ValueSpec)
		if !isValue || len(spec.Values) != 1 {
			return true
		}
		literal, isLiteral := spec.Values[0].(*ast.BasicLit)
		if !isLiteral {
			return true
		}
		value, err := strconv.Unquote(literal.Value)
		expect.NoError(t, err)
		switch name := spec.Names[0].Name; {
		case strings.HasPrefix(name, "Reason"):
			reasons[value] = name
		case strings.HasPrefix(name, "Condition"):
			conditions[value] = name
		}
		return true
	})
	return reasons, conditions
}

func TestReasonsOfEventsAreConstantsOfTheAPIAndDocumented(t *testing.T) {
	t.Parallel()
	documented, err := testkit.DocumentedEvents()
	expect.NoError(t, err)
	reasons, conditions := constants(t)
	for reason := range documented {
		if reasons[reason] == "" && conditions[reason] == "" {
			t.Errorf("docs/events.md has %s, and the API has no constant of this value", reason)
		}
	}
	// These are reasons in other contexts.
	elsewhere := []string{
		v2alpha1.ReasonDeadlineExceeded, v2alpha1.ReasonError, v2alpha1.ReasonPodSecurityViolation, v2alpha1.ReasonLimitRangeViolation,
		v2alpha1.ReasonResourcesMissing,
		v2alpha1.ReasonGangWaiting, v2alpha1.ReasonGangReplaced, v2alpha1.ReasonWaitingInQueue,
		v2alpha1.ReasonFollowing, v2alpha1.ReasonAdvising, v2alpha1.ReasonWaitingForReports,
		v2alpha1.ReasonNotReady, v2alpha1.ReasonSchedulingGated, v2alpha1.ReasonProbeFailed,
	}
	for reason, name := range reasons {
		if _, isEvent := documented[reason]; isEvent == slices.Contains(elsewhere, reason) {
			t.Errorf("%s (%s): an event in docs/events.md: %v", name, reason, isEvent)
		}
	}
}

// TestNoReasonIsWrittenWhereItIsSent finds reasons that are not constants.
func TestNoReasonIsWrittenWhereItIsSent(t *testing.T) {
	t.Parallel()
	// at is the index of the argument that is the reason, by function.
	at := map[string]int{"Eventf": 3, "event": 1, "report": 1, "Report": 2, "Set": 3}
	for _, folder := range []string{"controllers", "controllers/allocator", "controllers/dijob", "controllers/dijob/refusal", "upgrade/storagemigration", "job/lifecycle", "allocation", "webhook", "server", "internal/certs", "cmd/di-orchestrator/programs"} {
		files, err := filepath.Glob(filepath.Join(testkit.Root(), folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has %d files: %v", folder, len(files), err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				checkReasons(t, file, at)
			}
		}
	}
}

func checkReasons(t *testing.T, file string, at map[string]int) {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
	expect.NoError(t, err)
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch found := node.(type) {
		case *ast.CallExpr:
			index, isSender := at[calledName(found)]
			if isSender && index < len(found.Args) {
				checkReason(t, set, found.Args[index])
			}
		case *ast.KeyValueExpr:
			if key, isName := found.Key.(*ast.Ident); isName && key.Name == "Reason" {
				checkReason(t, set, found.Value)
			}
		}
		return true
	})
}

func calledName(call *ast.CallExpr) string {
	switch function := call.Fun.(type) {
	case *ast.Ident:
		return function.Name
	case *ast.SelectorExpr:
		return function.Sel.Name
	}
	return ""
}

func checkReason(t *testing.T, set *token.FileSet, reason ast.Expr) {
	t.Helper()
	if literal, isLiteral := reason.(*ast.BasicLit); isLiteral {
		t.Errorf("%s: reason %s is no constant of the API", set.Position(reason.Pos()), literal.Value)
	}
}
