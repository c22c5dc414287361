package world

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
)

// interceptor stands between the account and its callers.
type interceptor struct {
	hook atomic.Pointer[func(awsim.Call)]
	// describeDenied are the access keys that may not describe EKS clusters.
	describeDenied sync.Map
}

// denyDescribe answers a call that its caller has no right to, and reports whether it was one.
func (i *interceptor) denyDescribe(rw http.ResponseWriter, r *http.Request) bool {
	name, describes := strings.CutPrefix(r.URL.Path, "/clusters/")
	if !describes || r.Method != http.MethodGet || strings.Contains(name, "/") {
		return false
	}
	_, key, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	key, _, _ = strings.Cut(key, "/")
	if _, blind := i.describeDenied.Load(key); !blind {
		return false
	}
	rw.Header().Set("X-Amzn-Errortype", "AccessDeniedException")
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(rw, `{"message":"User is not authorized to perform: eks:DescribeCluster"}`) // a caller that is gone is no matter
	return true
}

// Intercept has hook called with every API call after it took effect and before its answer leaves, which
// waits for hook to return: a caller that hook kills has made the call and never learns of it. A nil hook
// stops that.
func (i *interceptor) Intercept(hook func(awsim.Call)) {
	if hook == nil {
		i.hook.Store(nil)
		return
	}
	i.hook.Store(&hook)
}

// intercepted is the account behind the interceptor.
func (w *World) intercepted() http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.denyDescribe(rw, r) {
			return
		}
		hook := w.hook.Load()
		if hook == nil {
			w.AWS.ServeHTTP(rw, r)
			return
		}
		held := bufferedResponse{header: http.Header{}, status: http.StatusOK}
		w.AWS.ServeHTTP(&held, r)
		if call, ok := w.call(held.requestID()); ok {
			(*hook)(call)
		}
		held.writeTo(rw)
	})
}

// call is the latest call of that request ID.
func (w *World) call(id string) (awsim.Call, bool) {
	calls := w.AWS.Calls()
	for n := len(calls) - 1; n >= 0; n-- {
		if calls[n].ID == id {
			return calls[n], true
		}
	}
	return awsim.Call{}, false
}

// bufferedResponse keeps an answer until it is released.
type bufferedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *bufferedResponse) Header() http.Header         { return h.header }
func (h *bufferedResponse) WriteHeader(status int)      { h.status = status }
func (h *bufferedResponse) Write(p []byte) (int, error) { return h.body.Write(p) }

func (h *bufferedResponse) requestID() string { return h.header.Get("X-Amzn-Requestid") }

func (h *bufferedResponse) writeTo(w http.ResponseWriter) {
	for name, values := range h.header {
		w.Header()[name] = values
	}
	w.WriteHeader(h.status)
	_, _ = w.Write(h.body.Bytes()) // a caller that is gone is no matter
}
