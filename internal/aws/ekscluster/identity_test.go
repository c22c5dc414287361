package ekscluster

import (
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

func bundle(certificates ...string) []byte {
	var out []byte
	for _, c := range certificates {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(c)})...)
	}
	return out
}

func TestCheckIdentity(t *testing.T) {
	const eks, inCluster = "https://ABC.gr7.eu-west-1.eks.amazonaws.com", "https://10.100.0.1:443"
	for _, tc := range []struct {
		name         string
		local, named APIServer
		mismatch     bool
		doubt        string
	}{
		{"in the cluster, same authority", APIServer{Endpoint: inCluster, CA: bundle("a")}, APIServer{Endpoint: eks, CA: bundle("a")}, false, ""},
		{
			"authority being rotated",
			APIServer{Endpoint: inCluster, CA: bundle("old", "new")},
			APIServer{Endpoint: eks, CA: bundle("new")},
			false, "",
		},
		{"another cluster", APIServer{Endpoint: inCluster, CA: bundle("b")}, APIServer{Endpoint: eks, CA: bundle("a")}, true, ""},
		{
			"same endpoint, spelled differently",
			APIServer{Endpoint: "https://abc.GR7.eu-west-1.eks.amazonaws.com:443/", CA: bundle("proxy")},
			APIServer{Endpoint: eks, CA: bundle("a")},
			false, "",
		},
		{
			"same host, another port",
			APIServer{Endpoint: "https://127.0.0.1:6443", CA: bundle("b")},
			APIServer{Endpoint: "https://127.0.0.1:7443", CA: bundle("a")},
			true, "",
		},
		{
			"authority not known here",
			APIServer{Endpoint: inCluster, CA: nil},
			APIServer{Endpoint: eks, CA: bundle("a")},
			false,
			"the CA of this API server (https://10.100.0.1:443) is not known",
		},
		{
			"authority that EKS does not return",
			APIServer{Endpoint: inCluster, CA: bundle("a")},
			APIServer{Endpoint: eks, CA: nil},
			false,
			`the CA of cluster "prod"`,
		},
		{
			"authority that is no PEM",
			APIServer{Endpoint: inCluster, CA: []byte("junk")},
			APIServer{Endpoint: eks, CA: bundle("a")},
			false,
			"is not known",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			doubt, err := CheckIdentity("prod", tc.local, tc.named)
			var mismatch *IdentityMismatchError
			if errors.As(err, &mismatch) != tc.mismatch || errors.Is(err, cloudprovider.ErrIdentityMismatch) != tc.mismatch {
				t.Errorf("got %v", err)
			}
			if (doubt != "") != (tc.doubt != "") || !strings.Contains(doubt, tc.doubt) {
				t.Errorf("not checked: %q, want %q", doubt, tc.doubt)
			}
		})
	}
}
