package ec2

import (
	"net/http"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// dryRun is the error for a DryRun request that would succeed.
func dryRun() error {
	return protocol.Errorf(
		"DryRunOperation",
		"Request would have succeeded, but DryRun flag is set.",
	).WithStatus(
		http.StatusPreconditionFailed,
	)
}

func missing(parameter string) error {
	return protocol.Errorf("MissingParameter", "The request must contain the parameter %s", parameter)
}

func invalidValue(format string, args ...any) *protocol.Error {
	return protocol.Errorf("InvalidParameterValue", format, args...)
}

func combination(format string, args ...any) error {
	return protocol.Errorf("InvalidParameterCombination", format, args...)
}

// oneOf rejects a value that is set and not among those allowed.
func oneOf(parameter, value string, allowed ...string) error {
	if value == "" {
		return nil
	}
	for _, a := range allowed {
		if a == value {
			return nil
		}
	}
	return invalidValue("Value (%s) for parameter %s is invalid. Valid values are %s.", value, parameter, strings.Join(allowed, ", "))
}

// between rejects a number that is set and outside its range.
func between(parameter string, value *int, low, high int) error {
	if value == nil || *value >= low && *value <= high {
		return nil
	}
	return invalidValue("Value (%d) for parameter %s is invalid. Expecting a value between %d and %d.", *value, parameter, low, high)
}

// firstError returns the first that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
