package awstest

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// records are those of a cluster, in memory.
type records struct {
	kept  ekscluster.Record
	found bool
}

func (r *records) Load(context.Context) (ekscluster.Record, bool, error) { return r.kept, r.found, nil }

func (r *records) Save(_ context.Context, kept ekscluster.Record) error {
	r.kept, r.found = kept, true
	return nil
}

// A restart while EKS fails goes on with what EKS returned before: nodes of AL2023 can be launched at once. A copy of the cluster with
// another CA, and a first start, wait for EKS, and the class reports it.
func TestRestartWhileEKSFailsKnowsTheServiceCIDR(t *testing.T) {
	for _, tc := range []struct {
		name string
		// endpoint is configured; before is whether an earlier process has read EKS; copied is another CA of the API server.
		endpoint        string
		before, copied  bool
		verified, known bool
	}{
		{"a restart", "", true, false, true, true},
		{"a restart with the endpoint configured", "https://private.example.com", true, false, true, true},
		{"a first start", "", false, false, false, false},
		{"a first start with the endpoint configured", "https://private.example.com", false, false, true, false},
		{"a copy of the cluster", "", true, true, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, kept := newWorld(t), &records{}
			local := ekscluster.APIServer{Endpoint: "https://10.100.0.1", CA: w.ca}
			config := func(ca []byte) adapter.Config {
				cfg := w.config("uid-1")
				cfg.Records, cfg.KubernetesVersion = kept, "1.32"
				cfg.Cluster.Endpoint, cfg.Cluster.CABundle = tc.endpoint, base64.StdEncoding.EncodeToString(ca)
				return cfg
			}
			if tc.before {
				w.start(config(w.ca))
			}
			if tc.copied {
				local.CA = certificate(t)
			}
			if err := w.Sim.InjectSpec("eks.*=InternalError,status=500"); err != nil {
				t.Fatal(err)
			}
			c, err := newCloud(config(local.CA))
			if err != nil {
				t.Fatal(err)
			}
			recalled, err := c.eks.Recall(t.Context(), local)
			if err != nil || recalled != (tc.before && !tc.copied) {
				t.Errorf("recalled %v, error %v", recalled, err)
			}
			if err := c.eks.Discover(t.Context(), local); (err == nil) != tc.verified || errors.Is(err, cloudprovider.ErrIdentityMismatch) {
				t.Errorf("discovered: %v", err)
			}
			if c.eks.Verified() != tc.verified || c.eks.Undescribed() == nil || (c.Cluster().ServiceCIDR != "") != tc.known {
				t.Errorf("verified %v, EKS answers %v, cluster %+v", c.eks.Verified(), c.eks.Undescribed(), c.Cluster())
			}
			class := nodeClass("default")
			got := conditionOf(c.ResolveNodeClass(t.Context(), class), awsv1.ConditionValidationSucceeded)
			if tc.known && got.Status != metav1.ConditionTrue {
				t.Errorf("the class is not valid: %+v", got)
			}
			if !tc.known && (got.Status != metav1.ConditionUnknown || got.Reason != "ClusterCIDRResolutionFailed" ||
				tc.verified && !strings.Contains(got.Message, "InternalError")) {
				t.Errorf("the class does not say that it waits for EKS: %+v", got)
			}
			w.Sim.ClearFaults()
			err = c.eks.Discover(t.Context(), local)
			if mismatch := errors.Is(err, cloudprovider.ErrIdentityMismatch); mismatch != tc.copied || (err == nil) == tc.copied {
				t.Errorf("once EKS answers: %v", err)
			}
			if !tc.copied && (c.eks.Undescribed() != nil || c.Cluster().ServiceCIDR != "10.100.0.0/16") {
				t.Errorf("once EKS answers: %v, %+v", c.eks.Undescribed(), c.Cluster())
			}
		})
	}
}
