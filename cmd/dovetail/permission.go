package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shownError is what a terminal shows of an error: its message, and a rule to paste where a permission is missing.
func shownError(err error) string {
	text := errorMessage(err.Error())
	if missing := missingPermission(err); missing != nil {
		text += "\nA Role or ClusterRole with this rule lets you " + missing.purpose() + " them:\n" + errorMessage(missing.rule())
	}
	return text
}

// permission is what the API server refused.
type permission struct{ group, resource, verb string }

// refusal is how the API server words it, whatever authorizes. The status has no field for the verb and the subresource. A quote in the
// name of a user has a backslash before it.
var refusal = regexp.MustCompile(`cannot ([a-z]+) resource "([a-z0-9./-]+)" in API group "`)

// missingPermission is that which an error of the API server lacks; nil if the error is of something else, such as an admission policy.
func missingPermission(err error) *permission {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Reason != metav1.StatusReasonForbidden {
		return nil
	}
	of := status.Status().Details
	refused := refusal.FindStringSubmatch(status.Status().Message)
	if of == nil || of.Kind == "" || refused == nil {
		return nil
	}
	out := &permission{group: of.Group, resource: of.Kind, verb: refused[1]}
	if strings.HasPrefix(refused[2], of.Kind+"/") { // a subresource, such as nodepools/status
		out.resource = refused[2]
	}
	return out
}

// readVerbs are the verbs of those who only read: who lacks one lacks the others as a rule.
var readVerbs = []string{"get", "list", "watch"}

// purpose is what the permission is for.
func (p *permission) purpose() string {
	if slices.Contains(readVerbs, p.verb) {
		return "read"
	}
	return p.verb
}

// rule is the rule of a Role, in one line of YAML.
func (p *permission) rule() string {
	verbs := []string{p.verb}
	if slices.Contains(readVerbs, p.verb) {
		verbs = readVerbs
	}
	return fmt.Sprintf("- {apiGroups: [%q], resources: [%q], verbs: [%s]}", p.group, p.resource, strings.Join(verbs, ", "))
}
