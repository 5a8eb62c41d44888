// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package brain

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// minSimilarity is the similarity below which a task of another job is ignored: at a distance above 0.5.
	minSimilarity = 0.5
	// otherTag is the similarity of two tags of one image repository.
	otherTag = 0.9
	// maxWords and maxWordBytes bound what is compared of a command.
	maxWords, maxWordBytes = 512, 64 << 10
)

// shape is what makes two tasks similar.
type shape struct {
	kind            v2alpha1.TaskType
	replicas        int32
	repository, tag string
	words           map[string]int
	total           int
}

// shapesOf returns the shapes of a job's tasks by name.
func shapesOf(job *record.Job) (map[string]shape, error) {
	manifest := []byte(job.Manifest)
	if job.Version == v1alpha1.Version {
		converted, err := conversion.Convert(manifest, v2alpha1.GroupVersion.String())
		if err != nil {
			return nil, fmt.Errorf("the manifest of job %s: %w", job.Name, err)
		}
		manifest = converted
	}
	var read v2alpha1.DIJob
	if err := json.Unmarshal(manifest, &read); err != nil {
		return nil, fmt.Errorf("the manifest of job %s: %w", job.Name, err)
	}
	shapes := make(map[string]shape, len(read.Spec.Tasks))
	for i := range read.Spec.Tasks {
		task := &read.Spec.Tasks[i]
		var template corev1.PodTemplateSpec
		if err := json.Unmarshal(task.Template.Raw, &template); err != nil || len(template.Spec.Containers) == 0 {
			continue
		}
		shapes[names.TaskName(task)] = shapeOf(task, names.MainContainer(&template.Spec))
	}
	return shapes, nil
}

func shapeOf(task *v2alpha1.Task, main *corev1.Container) shape {
	of := shape{kind: task.Type, replicas: 1, words: map[string]int{}}
	if task.Replicas != nil {
		of.replicas = *task.Replicas
	}
	of.repository, of.tag = main.Image, ""
	if name, digest, isPinned := strings.Cut(main.Image, "@"); isPinned {
		of.repository, of.tag = name, digest
	}
	if colon := strings.LastIndex(of.repository, ":"); colon > strings.LastIndex(of.repository, "/") {
		of.repository, of.tag = of.repository[:colon], of.repository[colon:]+of.tag
	}
	left := maxWordBytes
	for _, text := range append(append([]string{}, main.Command...), main.Args...) {
		text = text[:min(len(text), left)]
		left -= len(text)
		for word := range strings.FieldsFuncSeq(text, isBetweenWords) {
			if of.total == maxWords {
				return of
			}
			of.words[word]++
			of.total++
		}
	}
	return of
}

// isBetweenWords makes two words of an option and its value.
func isBetweenWords(r rune) bool { return r == '=' || r == ' ' || r == '\t' || r == '\n' }

// similarity returns how similar two tasks are, from 0 to 1: the product of the similarities of images, of words of
// command and arguments (Dice's coefficient), and of the numbers of replicas.
func (s *shape) similarity(other *shape) float64 {
	if s.kind != other.kind || s.repository != other.repository {
		return 0
	}
	similar := 1.0
	if s.tag != other.tag {
		similar = otherTag
	}
	if all := s.total + other.total; all > 0 {
		shared := 0
		for word, count := range s.words {
			shared += min(count, other.words[word])
		}
		similar *= 2 * float64(shared) / float64(all)
	}
	if fewer, more := min(s.replicas, other.replicas), max(s.replicas, other.replicas); more > 0 {
		similar *= 0.5 + 0.5*float64(max(fewer, 0))/float64(more)
	}
	return similar
}
