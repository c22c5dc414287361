package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/series"
)

// A record of half a minute with a shared name for one scrape and unknown instances to its end: the first alert fires while the record
// lasts, and the second, which needs a quarter of an hour, if nothing changes.
func TestAlertsOfARecord(t *testing.T) {
	var text strings.Builder
	begin := time.Now().Truncate(time.Second).Unix()
	for i := range int64(4) {
		fmt.Fprintf(&text, "karpenter_build_info{job=\"dovetail\"} 1 %d\nup{job=\"dovetail\"} 1 %[1]d\n", begin+10*i)
	}
	fmt.Fprintf(&text, "dovetail_foreign_instances{job=\"dovetail\",cluster_uid=\"6f1c\"} 2 %d\n", begin+10)
	fmt.Fprintf(&text, "dovetail_unknown_instances{job=\"dovetail\"} 1 %d\n", begin+30)
	text.WriteString("# EOF\n")
	store, err := series.Load([]byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	got, err := firedIn(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	want := fired{
		During: []map[string]string{
			{"alertname": "DovetailClusterNameShared", "severity": "critical", "job": "dovetail", "cluster_uid": "6f1c"},
		},
		After: []map[string]string{
			{"alertname": "DovetailUnknownInstances", "severity": "warning", "job": "dovetail"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
