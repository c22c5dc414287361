package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shownError is what a terminal shows of an error: its message, and a rule to paste where a permission is missing.
func shownError(err error) string {
	text := errorMessage(err.Error())
	if rule := missingRule(err); rule != "" {
		text += "\nA Role or ClusterRole with this rule permits it:\n" + errorMessage(rule)
	}
	return text
}

// refusedVerb is in the message of the API server's own authorizer: User "x" cannot list resource "nodes" in API group "".
var refusedVerb = regexp.MustCompile(`cannot ([a-z]+) resource "`)

// missingRule is the rule of a Role, in one line of YAML, that an error of the API server lacks; empty if it is of something else. Who may
// not list objects lacks the other verbs by which they are read as well, as a rule.
func missingRule(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Reason != metav1.StatusReasonForbidden || status.Status().Details == nil {
		return ""
	}
	refused, of := refusedVerb.FindStringSubmatch(status.Status().Message), status.Status().Details
	if refused == nil || of.Kind == "" { // an admission policy has refused it, which no rule changes
		return ""
	}
	verbs := "get, list, watch"
	if !slices.Contains([]string{"get", "list", "watch"}, refused[1]) {
		verbs = refused[1]
	}
	return fmt.Sprintf("- {apiGroups: [%q], resources: [%q], verbs: [%s]}", of.Group, of.Kind, verbs)
}
