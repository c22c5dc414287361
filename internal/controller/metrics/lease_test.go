package metrics

import (
	"errors"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestSlowRenewalsOfTheLease(t *testing.T) {
	const lease, other = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/leader", "/api/v1/nodes/leader"
	type request struct {
		method, path string
		status       int // 0 for no answer
	}
	for _, tt := range []struct {
		name     string
		requests []request
		want     float64
	}{
		{"renewed at once", []request{{"PUT", lease, 200}, {"PUT", lease, 200}}, 0},
		{"a standby reads", []request{{"GET", lease, 200}, {"GET", lease, 200}, {"PUT", lease, 200}}, 0},
		{"a conflict", []request{{"PUT", lease, 200}, {"PUT", lease, 409}, {"GET", lease, 200}, {"PUT", lease, 200}, {"PUT", lease, 200}}, 1},
		{"no answer, and the read fails first", []request{{"PUT", lease, 0}, {"GET", lease, 500}, {"PUT", lease, 200}}, 0},
		{"twice", []request{{"PUT", lease, 500}, {"GET", lease, 200}, {"PUT", lease, 500}, {"GET", lease, 200}, {"PUT", lease, 200}}, 2},
		{"other objects", []request{{"PUT", other, 409}, {"GET", other, 200}, {"PUT", other, 200}}, 0},
	} {
		l, err := NewLease(prometheus.NewRegistry(), "leader")
		if err != nil {
			t.Fatal(err)
		}
		status := 0
		client := http.Client{Transport: l.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
			if status == 0 {
				return nil, errors.New("connection reset")
			}
			return &http.Response{StatusCode: status, Body: http.NoBody}, nil
		}))}
		for _, r := range tt.requests {
			status = r.status
			request, err := http.NewRequestWithContext(t.Context(), r.method, "http://api"+r.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if answer, err := client.Do(request); err == nil {
				_ = answer.Body.Close()
			}
		}
		if got := testutil.ToFloat64(l.slow); got != tt.want {
			t.Errorf("%s: counted %v, want %v", tt.name, got, tt.want)
		}
	}
}
