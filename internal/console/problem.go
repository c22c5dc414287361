package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/inspect/podreport"
	"github.com/dovetail-k8s/dovetail/internal/top/live"
)

// Code is the class of a Problem, for programs.
type Code string

// The codes.
const (
	CodeInvalid   Code = "Invalid"
	CodeNotFound  Code = "NotFound"
	CodeForbidden Code = "Forbidden"
	CodeLoading   Code = "Loading"
	CodeAway      Code = "Unavailable"
	CodeBusy      Code = "Busy"
	CodeCrossSite Code = "CrossSite"
	// CodeUnauthenticated needs a token, CodeNotAllowed a right, and CodeStandby another replica of the controller.
	CodeUnauthenticated Code = "Unauthenticated"
	CodeNotAllowed      Code = "NotAllowed"
	CodeStandby         Code = "Standby"
	// CodeUnreadable is that of a recording that cannot be read.
	CodeUnreadable Code = "Unreadable"
	CodeInternal   Code = "Internal"
)

// Problem is the answer to a request that failed.
type Problem struct {
	Status int  `json:"status"`
	Code   Code `json:"code"`
	// Field of the request that is wrong; empty if none is.
	Field   string `json:"field"`
	Message string `json:"message"`
	// Rule is the rule of a Role that is missing, as YAML; empty if none is.
	Rule string `json:"rule"`
}

// Error implements error.
func (p *Problem) Error() string { return p.Message }

// invalid is the Problem of a field of the request.
func invalid(field, message string) *Problem {
	return &Problem{Status: http.StatusBadRequest, Code: CodeInvalid, Field: field, Message: field + ": " + message}
}

// problemOf classifies an error.
func problemOf(err error) *Problem {
	var (
		known     *Problem
		forbidden *live.ForbiddenError
		status    apierrors.APIStatus
	)
	out := &Problem{Status: http.StatusServiceUnavailable, Code: CodeAway, Message: err.Error()}
	switch {
	case errors.As(err, &known):
		return known
	case notFound(err):
		out.Status, out.Code = http.StatusNotFound, CodeNotFound
	case errors.As(err, &forbidden):
		out.Status, out.Code, out.Rule = http.StatusForbidden, CodeForbidden, ruleFor(forbidden.Resource)
		out.Message = forbidden.Error() // without what it was read for
	case errors.Is(err, live.ErrLoading):
		out.Code = CodeLoading
	case apierrors.IsForbidden(err) && errors.As(err, &status):
		out.Status, out.Code = http.StatusForbidden, CodeForbidden
		if d := status.Status().Details; d != nil && d.Kind != "" {
			out.Rule = ruleFor(strings.TrimSuffix(d.Kind+"."+d.Group, "."))
		}
	}
	return out
}

// notFound reports whether the error is that of an object that the cluster does not have.
func notFound(err error) bool {
	return errors.As(err, new(*inspect.NotFoundError)) || errors.As(err, new(*podreport.NotFoundError))
}

// ruleFor is the rule of a ClusterRole that lets a user list and watch a resource, such as nodeclaims.karpenter.sh.
func ruleFor(resource string) string {
	name, group, _ := strings.Cut(resource, ".")
	return "- apiGroups: [\"" + group + "\"]\n  resources: [" + name + "]\n  verbs: [list, watch]\n"
}

func writeProblem(w http.ResponseWriter, p *Problem) { writeJSON(w, p.Status, p) }

func writeJSON(w http.ResponseWriter, status int, answer any) {
	data, err := json.Marshal(answer)
	if err != nil { // a bug: answers are plain data
		status = http.StatusInternalServerError
		data = []byte(`{"status":500,"code":"Internal","field":"","message":"the answer cannot be encoded","rule":""}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // the browser has gone
}

// answer runs the handler of a route.
func (c *Console) answer(r route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			if caught := recover(); caught != nil {
				c.Log.Error("a request of the console panicked, which is a bug in Dovetail", "path", req.URL.Path, "panic", caught)
				writeProblem(w, &Problem{
					Status: http.StatusInternalServerError, Code: CodeInternal,
					Message: "this answer failed, which is a bug in Dovetail: its log names the cause",
				})
			}
		}()
		found, err := r.answer(req)
		switch {
		case err == nil:
			writeJSON(w, http.StatusOK, found)
		case errors.Is(err, context.Canceled): // nobody waits for it
		default:
			writeProblem(w, problemOf(err))
		}
	})
}
