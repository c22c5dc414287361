package zonalshift_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

const cluster = "arn:aws:eks:us-east-1:111122223333:cluster/c1"

// away returns the zones that GetManagedResource states a resource's traffic is shifted away from, and the HTTP status.
func away(t *testing.T, w *awsimtest.World, arn string) ([]string, int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL+"/managedresources/"+url.PathEscape(arn), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(
		"Authorization",
		"AWS4-HMAC-SHA256 Credential=test/20260821/us-east-1/arc-zonal-shift/aws4_request, SignedHeaders=host, Signature=0",
	)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var out struct {
		ZonalShifts []struct {
			AwayFrom, AppliedStatus, ShiftType string
			ExpiryTime                         float64
		}
		Autoshifts []struct{ AwayFrom, AppliedStatus string }
	}
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	zones := []string{}
	for _, s := range out.ZonalShifts {
		if s.AppliedStatus == "APPLIED" {
			zones = append(zones, s.AwayFrom)
		} else {
			zones = append(zones, "not "+s.AwayFrom)
		}
	}
	for _, s := range out.Autoshifts {
		zones = append(zones, "auto "+s.AppliedStatus+" "+s.AwayFrom)
	}
	return zones, answer.StatusCode
}

func TestShifts(t *testing.T) {
	w := awsimtest.Start(t)
	if err := w.Sim.SeedCluster(awsim.ClusterSpec{Name: "c1", Version: "1.36", Endpoint: "https://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	if zones, status := away(t, w, cluster); len(zones) != 0 || status != http.StatusOK {
		t.Errorf("at first: %v, status %d", zones, status)
	}
	if _, status := away(t, w, cluster+"2"); status != http.StatusNotFound {
		t.Errorf("a cluster that does not exist: status %d", status)
	}
	shifts := w.Sim.ZonalShifts()
	if err := shifts.Start(cluster, "use1-az9", time.Hour); err == nil {
		t.Error("shifted away from a zone that does not exist")
	}
	if err := shifts.Start(cluster, "use1-az2", time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := shifts.Start(cluster, "use1-az1", time.Hour); err == nil {
		t.Error("shifted away from two zones at a time")
	}
	if zones, _ := away(t, w, cluster); len(zones) != 1 || zones[0] != "use1-az2" {
		t.Errorf("shifted away from %v", zones)
	}
	w.Clock.Advance(time.Hour)
	if zones, _ := away(t, w, cluster); len(zones) != 0 {
		t.Errorf("after its end: %v", zones)
	}
	if err := shifts.Start(cluster, "use1-az1", time.Hour); err != nil {
		t.Fatal(err)
	}
	shifts.Cancel(cluster)
	if zones, _ := away(t, w, cluster); len(zones) != 0 {
		t.Errorf("after it was cancelled: %v", zones)
	}
}

// TestPrecedence: of all shifts of a resource one is applied: the customer's, then AWS's, then the practice run.
func TestPrecedence(t *testing.T) {
	w := awsimtest.Start(t)
	if err := w.Sim.SeedCluster(awsim.ClusterSpec{Name: "c1", Version: "1.36", Endpoint: "https://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	shifts := w.Sim.ZonalShifts()
	for _, row := range []struct {
		what string
		do   func() error
		want []string
	}{
		{"practice run", func() error { return shifts.StartPracticeRun(cluster, "use1-az1", 3*time.Hour) }, []string{"use1-az1"}},
		{"autoshift", func() error { return shifts.StartAutoshift(cluster, "use1-az2") }, []string{"not use1-az1", "auto APPLIED use1-az2"}},
		{"the customer's", func() error { return shifts.Start(cluster, "use1-az3", time.Hour) }, []string{
			"use1-az3", "not use1-az1",
			"auto NOT_APPLIED use1-az2",
		}},
		{"the customer's ends", func() error { w.Clock.Advance(time.Hour); return nil }, []string{"not use1-az1", "auto APPLIED use1-az2"}},
		{"so does the practice run", func() error { w.Clock.Advance(2 * time.Hour); return nil }, []string{"auto APPLIED use1-az2"}},
		{"all end", func() error { shifts.Cancel(cluster); return nil }, []string{}},
	} {
		if err := row.do(); err != nil {
			t.Fatalf("%s: %v", row.what, err)
		}
		if got, _ := away(t, w, cluster); !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.what, got, row.want)
		}
	}
}
