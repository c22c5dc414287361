package main

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shownError is what a terminal shows of an error: its message, and a rule to paste where a permission is missing.
func shownError(err error) string {
	text := errorMessage(err.Error())
	if rule := missingRule(err); rule != "" {
		text += "\nA Role or ClusterRole with this rule lets you read them:\n" + errorMessage(rule)
	}
	return text
}

// missingRule is the rule of a Role, in one line of YAML, that an error of the API server lacks; empty if it is of something else. Commands
// only read objects, and who may not list some lacks the other verbs of reading as a rule.
func missingRule(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Reason != metav1.StatusReasonForbidden {
		return ""
	}
	of := status.Status().Details
	if of == nil || of.Kind == "" {
		return ""
	}
	return fmt.Sprintf("- {apiGroups: [%q], resources: [%q], verbs: [get, list, watch]}", of.Group, of.Kind)
}
