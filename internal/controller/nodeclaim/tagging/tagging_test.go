package tagging

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

type ec2 struct {
	named []string
	err   error
	// meanwhile, if set, happens during a call.
	meanwhile func()
}

func (e *ec2) Name(_ context.Context, providerID, node, claim string) error {
	e.named = append(e.named, fmt.Sprintf("%s node=%s claim=%s", providerID, node, claim))
	if e.meanwhile != nil {
		e.meanwhile()
	}
	return e.err
}

func TestTagging(t *testing.T) {
	const named = "aws:///us-east-1a/i-a node=node-a claim=a"
	annotated := func(keys ...string) func(*karpv1.NodeClaim) {
		return func(c *karpv1.NodeClaim) {
			for _, key := range keys {
				c.Annotations[key] = "true"
			}
		}
	}
	for _, tt := range []struct {
		name  string
		claim *karpv1.NodeClaim
		err   error
		named bool
		done  bool
	}{
		{"its node has joined", controllertest.Claim("a", controllertest.Registered), nil, true, true},
		{"no node yet", controllertest.Claim("a", controllertest.Launched), nil, false, false},
		{"deleting", controllertest.Claim("a", controllertest.Registered, controllertest.Deleting), nil, false, false},
		{
			"done", controllertest.Claim("a", controllertest.Registered, annotated(awsv1.AnnotationTagged, awsv1.AnnotationClusterNameTagged)),
			nil, false, true,
		},
		{
			"done but for the cluster's name", controllertest.Claim("a", controllertest.Registered, annotated(awsv1.AnnotationTagged)), nil, true,
			true,
		},
		{
			"the instance is gone", controllertest.Claim("a", controllertest.Registered), fmt.Errorf("get: %w", cloudprovider.ErrNotFound), true,
			false,
		},
		{"EC2 refuses", controllertest.Claim("a", controllertest.Registered), errors.New("UnauthorizedOperation"), true, false},
		{"another provider's", controllertest.Claim("a", controllertest.Registered,
			func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" }), nil, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, tt.claim)
			cloudOf := &ec2{err: tt.err}
			_, err := f.Try(&Reconciler{Client: f.API, Cloud: cloudOf, Log: f.Log}, "a")
			if wantErr := tt.err != nil && !errors.Is(tt.err, cloudprovider.ErrNotFound); (err != nil) != wantErr {
				t.Errorf("error %v", err)
			}
			want := []string(nil)
			if tt.named {
				want = []string{named}
			}
			if diff := cmp.Diff(want, cloudOf.named); diff != "" {
				t.Errorf("named (-want +got):\n%s", diff)
			}
			a := f.Claim("a").Annotations
			if done := a[awsv1.AnnotationTagged] == "true" && a[awsv1.AnnotationClusterNameTagged] == "true"; done != tt.done {
				t.Errorf("annotations %v", a)
			}
		})
	}
}

// Others write a claim while its instance is tagged: nodes become ready at that time. EC2 is not called again for it.
func TestClaimChangesDuringTheCall(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a", controllertest.Registered))
	cloudOf := &ec2{meanwhile: func() {
		c := f.Claim("a")
		c.Labels["other"] = "writer"
		f.Do(f.API.Update(f.Context(), c))
	}}
	writes := 0
	api := interceptor.NewClient(f.API, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, o, p, opts...)
		},
	})
	f.Reconcile(&Reconciler{Client: api, Cloud: cloudOf, Log: f.Log}, "a")
	if writes != 1 {
		t.Errorf("%d writes, want 1", writes)
	}
	if c := f.Claim("a"); needsTags(c) || c.Labels["other"] != "writer" || len(cloudOf.named) != 1 {
		t.Errorf("annotations %v, labels %v, %d calls", c.Annotations, c.Labels, len(cloudOf.named))
	}
}
