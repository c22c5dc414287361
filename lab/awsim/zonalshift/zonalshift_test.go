package zonalshift_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

const cluster = "arn:aws:eks:us-east-1:111122223333:cluster/c1"

// away returns the zones that GetManagedResource says a resource's traffic is shifted away from, and the HTTP status.
func away(t *testing.T, w *awsimtest.World, arn string) ([]string, int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL+"/managedresources/"+url.PathEscape(arn), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20260821/us-east-1/arc-zonal-shift/aws4_request, SignedHeaders=host, Signature=0")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var out struct {
		ZonalShifts []struct {
			AwayFrom   string
			ExpiryTime float64
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	zones := []string{}
	for _, s := range out.ZonalShifts {
		zones = append(zones, s.AwayFrom)
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
