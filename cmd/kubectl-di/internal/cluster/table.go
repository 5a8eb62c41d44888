// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/rest"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// pageSize is how many jobs are asked for at once.
const pageSize = 500

// asTable asks for what kubectl get shows, in the API server's own columns.
const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// Selection says which jobs are meant.
type Selection struct {
	// Namespace is where they are; all namespaces when empty.
	Namespace string
	// Name is that of the only one; empty for all.
	Name string
	// Labels and Fields select among them.
	Labels, Fields string
	// Table asks for tables instead of jobs.
	Table bool
}

// Select shows the jobs that are meant, in pages, and returns the version of
// the list to watch from.
func (c *Cluster) Select(ctx context.Context, which *Selection, seen func(runtime.Object) error) (string, error) {
	api, err := c.raw()
	if err != nil {
		return "", err
	}
	options := which.options()
	options.Limit = pageSize
	for {
		object, err := which.request(api, options).Do(ctx).Get()
		if err != nil {
			return "", which.explain("listing", "list", err)
		}
		list, err := listed(object)
		if err != nil {
			return "", err
		}
		if err := seen(plain(list)); err != nil {
			return "", err
		}
		if options.Continue = list.GetContinue(); options.Continue == "" || which.Name != "" {
			return list.GetResourceVersion(), nil
		}
	}
}

// page is what has the metadata of a list, or an object.
type page interface {
	runtime.Object
	GetContinue() string
	GetResourceVersion() string
}

// Watch shows each of the jobs that are meant when it changes, from a version of
// the list on, until the context ends or the user turns out to lack a right.
// Where the API server ends the watch it goes on, and where it has forgotten the
// version it shows all jobs that there are.
func (c *Cluster) Watch(ctx context.Context, which *Selection, from string, seen func(watch.EventType, runtime.Object) error) error {
	told := ""
	err := wait.PollUntilContextCancel(ctx, watchPause, true, func(ctx context.Context) (bool, error) {
		err := c.watchOnce(ctx, which, &from, seen)
		var passing *passingError
		switch {
		case err == nil:
			told = ""
		case !errors.As(err, &passing):
			return false, err
		case ctx.Err() == nil && err.Error() != told:
			told = err.Error()
			fmt.Fprintf(c.errOut, "kubectl-di: %v; trying again\n", err)
		}
		return false, nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // Whoever ends the command wants nothing more of it.
	}
	return err
}

// watchPause is the pause before it is watched again.
const watchPause = time.Second

// passingError is an error after which it is tried again.
type passingError struct{ error }

// Unwrap implements the interface of package errors.
func (e *passingError) Unwrap() error { return e.error }

// watchOnce watches until the watch ends; the version moves along.
func (c *Cluster) watchOnce(ctx context.Context, which *Selection, from *string, seen func(watch.EventType, runtime.Object) error) error {
	api, err := c.raw()
	if err != nil {
		return err
	}
	if *from == "" {
		version, err := c.Select(ctx, which, func(object runtime.Object) error { return each(object, seen) })
		if err != nil {
			return passing(err)
		}
		*from = version
	}
	options := which.options()
	options.ResourceVersion, options.Watch = *from, true
	if which.Name != "" {
		options.FieldSelector = "metadata.name=" + which.Name
	}
	all := *which
	all.Name = ""
	watching, err := all.request(api, options).Watch(ctx)
	if isForgotten(err) {
		*from = ""
		return nil
	}
	if err != nil {
		return passing(which.explain("watching", "watch", err))
	}
	defer watching.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-watching.ResultChan():
			if !open {
				return nil
			}
			if err := take(event, from, seen); err != nil || *from == "" {
				return err
			}
		}
	}
}

// take shows what an event says, and moves the version along: to none where the
// API server has forgotten it.
func take(event watch.Event, from *string, seen func(watch.EventType, runtime.Object) error) error {
	if event.Type == watch.Error {
		err := apierrors.FromObject(event.Object)
		if unknown, is := event.Object.(*unstructured.Unstructured); is {
			status := &metav1.Status{}
			if runtime.DefaultUnstructuredConverter.FromUnstructured(unknown.Object, status) == nil {
				err = &apierrors.StatusError{ErrStatus: *status}
			}
		}
		if isForgotten(err) {
			*from = ""
			return nil
		}
		return &passingError{fmt.Errorf("watching jobs: %w", err)}
	}
	object, err := watched(event)
	if err != nil {
		return err
	}
	if version := versionOf(object); version != "" {
		*from = version
	}
	return seen(event.Type, object)
}

func isForgotten(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// passing marks an error after which it is tried again.
func passing(err error) error {
	if isLasting(err) {
		return err
	}
	return &passingError{err}
}

// each shows what a list holds as what has changed.
func each(object runtime.Object, seen func(watch.EventType, runtime.Object) error) error {
	if _, isTable := object.(*metav1.Table); isTable || !meta.IsListType(object) {
		return seen(watch.Modified, object)
	}
	return meta.EachListItem(object, func(item runtime.Object) error { return seen(watch.Modified, item) })
}

// versionOf returns the version of an object, or of that of a table's row.
func versionOf(object runtime.Object) string {
	if table, isTable := object.(*metav1.Table); isTable {
		if len(table.Rows) == 0 {
			return ""
		}
		object = table.Rows[len(table.Rows)-1].Object.Object
	}
	metadata, err := meta.Accessor(object)
	if err != nil {
		return "" // It has none, and the version stays.
	}
	return metadata.GetResourceVersion()
}

// watched returns the object of an event.
func watched(event watch.Event) (runtime.Object, error) {
	object, isUnstructured := event.Object.(*unstructured.Unstructured)
	if !isUnstructured {
		return nil, fmt.Errorf("watching jobs: the API server sent a %T", event.Object)
	}
	read, err := listed(object)
	return plain(read), err
}

// raw returns a client of what the API server has, in any form.
func (c *Cluster) raw() (rest.Interface, error) {
	config := rest.CopyConfig(c.config)
	config.APIPath, config.ContentConfig = "/apis", resource.UnstructuredPlusDefaultContentConfig()
	config.GroupVersion = &v2alpha1.GroupVersion
	api, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return api, nil
}

func (s *Selection) options() *metav1.ListOptions {
	return &metav1.ListOptions{LabelSelector: s.Labels, FieldSelector: s.Fields}
}

func (s *Selection) request(api rest.Interface, options *metav1.ListOptions) *rest.Request {
	request := api.Get().NamespaceIfScoped(s.Namespace, s.Namespace != "").Resource("dijobs")
	if s.Name != "" {
		request = request.Name(s.Name)
	} else {
		request = request.SpecificallyVersionedParams(options, metav1.ParameterCodec, metav1.SchemeGroupVersion)
	}
	if s.Table {
		request = request.SetHeader("Accept", asTable)
	}
	return request
}

// explain says what was done, and which role would allow it.
func (s *Selection) explain(doing, verb string, err error) error {
	purpose := doing + " the jobs of all namespaces"
	need := Right{Verb: verb, Group: v2alpha1.GroupName, Resource: "dijobs", Namespace: s.Namespace}
	switch {
	case s.Name != "":
		purpose = doing + " job " + s.Namespace + "/" + s.Name
		if verb == "list" {
			need.Verb = "get"
		}
	case s.Namespace != "":
		purpose = doing + " the jobs of namespace " + s.Namespace
	}
	return need.Denied(purpose, err)
}

// listed returns what was read, of which a table is made one.
func listed(object runtime.Object) (page, error) {
	switch read := object.(type) {
	case *unstructured.UnstructuredList:
		return read, nil
	case *unstructured.Unstructured:
		if read.GetKind() == "Table" && strings.HasPrefix(read.GetAPIVersion(), metav1.GroupName+"/") {
			return tableOf(read)
		}
		return single{read}, nil
	}
	return nil, fmt.Errorf("the API server sent a %T, and not jobs", object)
}

// single is an object as a list of it.
type single struct{ *unstructured.Unstructured }

// GetContinue returns that there is no more.
func (single) GetContinue() string { return "" }

// tableOf decodes a table and the metadata in its rows.
func tableOf(object *unstructured.Unstructured) (page, error) {
	table := &metav1.Table{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, table); err != nil {
		return nil, fmt.Errorf("decoding the table of jobs: %w", err)
	}
	for i := range table.Rows {
		row := &table.Rows[i]
		if row.Object.Raw == nil {
			continue
		}
		metadata, err := runtime.Decode(unstructured.UnstructuredJSONScheme, row.Object.Raw)
		if err != nil {
			return nil, fmt.Errorf("decoding a row of the table of jobs: %w", err)
		}
		row.Object.Object = metadata
	}
	return table, nil
}

// plain returns an object as it was read.
func plain(read page) runtime.Object {
	if one, isOne := read.(single); isOne {
		return one.Unstructured
	}
	return read
}
