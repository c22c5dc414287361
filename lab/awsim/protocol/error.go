package protocol

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
)

// Error is an answer that a service gives instead of a result.
type Error struct {
	Code    string
	Message string
	// Status is the HTTP status. A status of 500 and above is the server's fault, which SDKs retry.
	Status int
	// QueryCode is the code of the older query protocol that services which moved to JSON still send in the header
	// x-amzn-query-error (SQS); empty = none.
	QueryCode string
}

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Errorf returns an error of the caller: status 400.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Status: http.StatusBadRequest}
}

// WithStatus returns a copy of e with another HTTP status.
func (e *Error) WithStatus(status int) *Error {
	c := *e
	c.Status = status
	return &c
}

// asError makes an API error of any error; what a service did not foresee is its own fault.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		if e.Status == 0 {
			e = e.WithStatus(http.StatusBadRequest)
		}
		return e
	}
	return &Error{Code: "InternalError", Message: "An internal error has occurred", Status: http.StatusInternalServerError}
}

// isNil reports a handler that had nothing to state.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}
