package awsim_test

import (
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/pricing"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
	"github.com/dovetail-k8s/dovetail/lab/awsim/sts"
)

// TestNoActionIgnoresAParameter sends every action of every service a parameter that it does not have: none may go by
// in silence, as a client would then believe that it has what it requested.
func TestNoActionIgnoresAParameter(t *testing.T) {
	w := awsimtest.Start(t)
	if err := w.Sim.SeedCluster(awsim.ClusterSpec{Name: "x", Version: "1.36", Endpoint: "https://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`\{\w+\}`)
	actions := 0
	for _, svc := range []protocol.Service{
		w.Sim.EC2().Service(), w.Sim.IAM().Service(), sts.New(sts.Config{}).Service(), w.Sim.SSM().Service(), w.Sim.EKS().Service(),
		w.Sim.SQS().Service(),
		pricing.New(nil).Service(), w.Sim.ZonalShifts().Service(),
	} {
		for _, action := range slices.Sorted(maps.Keys(svc.Handlers)) {
			actions++
			method, path, body, contentType, want := http.MethodPost, "/", `{"Colour":"red"}`, "application/x-amz-json-1.1", "SerializationException"
			switch svc.Protocol {
			case protocol.EC2Query, protocol.AWSQuery:
				body, contentType = "Action="+action+"&Colour=red&Version="+svc.Version, "application/x-www-form-urlencoded"
				want = "UnknownParameter"
				if svc.Protocol == protocol.AWSQuery {
					want = "unknown parameter"
				}
			case protocol.RESTJSON:
				at := slices.IndexFunc(svc.Routes, func(r protocol.Route) bool { return r.Action == action })
				method, path, body, want = svc.Routes[at].Method, variable.ReplaceAllString(
					svc.Routes[at].Path,
					"x",
				)+"?colour=red", "", "Unknown parameter colour"
			}
			r := awsimtest.OK(http.NewRequestWithContext(t.Context(), method, w.URL+path, strings.NewReader(body)))(t)
			r.Header.Set(
				"Authorization",
				"AWS4-HMAC-SHA256 Credential=test/20260821/us-east-1/"+svc.Name+"/aws4_request, SignedHeaders=host, Signature=0",
			)
			r.Header.Set("Content-Type", contentType)
			r.Header.Set("X-Amz-Target", "Service."+action)
			answer := awsimtest.OK(http.DefaultClient.Do(r))(t)
			text := string(awsimtest.OK(io.ReadAll(answer.Body))(t))
			answer.Body.Close()
			if answer.StatusCode != http.StatusBadRequest || !strings.Contains(text, want) {
				t.Errorf("%s:%s: %d %s; want 400 with %s", svc.Name, action, answer.StatusCode, text, want)
			}
		}
	}
	if actions < 80 {
		t.Errorf("%d actions", actions)
	}
}
