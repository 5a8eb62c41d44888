// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// source is the state of the released checkout.
type source struct {
	version string
	// revision is the checked-out commit.
	revision string
	// tagged is the commit of the version's tag; empty without a tag.
	tagged string
	// changes are the files that differ from the commit.
	changes []string
	// time is the time of the commit, or SOURCE_DATE_EPOCH.
	time time.Time
}

func inspect(ctx context.Context, root, version string) (source, error) {
	s := source{version: version}
	var err error
	if s.revision, err = git(ctx, root, "rev-parse", "HEAD"); err != nil {
		return source{}, err
	}
	tag, err := git(ctx, root, "for-each-ref", "--format=%(objectname) %(*objectname)", "refs/tags/"+version)
	if err != nil {
		return source{}, err
	}
	if fields := strings.Fields(tag); len(fields) > 0 {
		s.tagged = fields[len(fields)-1] // Of an annotated tag, the second is the commit.
	}
	status, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return source{}, err
	}
	s.changes = strings.FieldsFunc(status, func(r rune) bool { return r == '\n' })
	committed, err := git(ctx, root, "show", "-s", "--format=%ct", "HEAD")
	if err != nil {
		return source{}, err
	}
	s.time, err = releaseTime(os.Getenv("SOURCE_DATE_EPOCH"), committed)
	return s, err
}

// releaseTime returns the time of the artifacts.
func releaseTime(epoch, committed string) (time.Time, error) {
	text := committed
	if epoch != "" {
		text = epoch
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH %q: want seconds since 1970", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// check returns an error if the release cannot be reproduced. A snapshot need not be reproducible.
func (s source) check(snapshot bool) error {
	if snapshot {
		return nil
	}
	if len(s.changes) > 0 {
		return fmt.Errorf("%d files are not committed, the first: %s: commit or stash them, or build with SNAPSHOT=1",
			len(s.changes), strings.TrimSpace(s.changes[0]))
	}
	if s.tagged != "" && s.tagged != s.revision {
		return fmt.Errorf("tag %s is at commit %s, and %s is checked out: check the tag out, or choose another version",
			s.version, s.tagged, s.revision)
	}
	return nil
}

// checkRepeatable returns an error if changes are not committed, because a clone does not contain
// them. It also applies to a snapshot.
func (s source) checkRepeatable() error {
	if len(s.changes) == 0 {
		return nil
	}
	return fmt.Errorf("%d files are not committed, the first: %s: commit or stash them, for the second build is that of a clone",
		len(s.changes), strings.TrimSpace(s.changes[0]))
}

// git runs git in the folder and returns its output.
func git(ctx context.Context, folder string, args ...string) (string, error) {
	printed, err := exec.CommandContext(ctx, "git", append([]string{"-C", folder}, args...)...).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(failed.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.Trim(string(printed), "\n"), nil
}
