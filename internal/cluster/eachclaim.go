package cluster

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// claimsPerPage sets how many NodeClaims are read from the API server at once. A page takes about 20 MB while it is decoded; 5,000 claims
// in one answer take 200 MB.
const claimsPerPage = 500

// EachClaim calls f with each NodeClaim of the API server, as they all were at one instant. f must copy what it keeps.
func EachClaim(ctx context.Context, live client.Reader, f func(*karpv1.NodeClaim)) error {
	for next := ""; ; {
		var page karpv1.NodeClaimList
		if err := live.List(ctx, &page, client.Limit(claimsPerPage), client.Continue(next)); err != nil {
			return err
		}
		for i := range page.Items {
			f(&page.Items[i])
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}
