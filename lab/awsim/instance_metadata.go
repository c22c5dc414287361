package awsim

import (
	"fmt"
	"net/http"
	"path"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/iam"
	"github.com/dovetail-k8s/dovetail/lab/awsim/metadata"
	"github.com/dovetail-k8s/dovetail/lab/awsim/podidentity"
)

// lifeOfSession is how long credentials last that come from where a process gets new ones.
const lifeOfSession = 6 * time.Hour

// Metadata is the metadata service of an instance.
func (s *Sim) Metadata(instanceID string) (http.Handler, error) {
	i, ok := s.ec2.Instance(instanceID)
	if !ok {
		return nil, fmt.Errorf("metadata of instance %s: no such instance", instanceID)
	}
	role := ""
	if i.RoleARN != "" {
		role = path.Base(i.RoleARN)
	}
	return metadata.New(metadata.Instance{
		ID: i.ID, Type: i.Type, ImageID: i.ImageID, PrivateIP: i.PrivateIP, AccountID: s.options.AccountID, Region: s.options.Region,
		Zone: i.Zone, Architecture: i.Architecture, Role: role, Now: s.options.Clock.Now,
		Credentials: func() (Credentials, error) { return s.session(role, i.ID) },
	}), nil
}

// PodIdentityAgent is the agent of a cluster that gives pods credentials of roles which trust EKS to do so.
func (s *Sim) PodIdentityAgent() *podidentity.Agent {
	return podidentity.New(podidentity.Config{
		AccountID: s.options.AccountID, Now: s.options.Clock.Now,
		Credentials: func(role string) (Credentials, error) {
			r, ok := s.iam.Role(role)
			if !ok || !r.Trusts(iam.Assumption{Action: "sts:AssumeRole", Service: "pods.eks.amazonaws.com"}) {
				return Credentials{}, fmt.Errorf("role %s does not trust pods.eks.amazonaws.com to assume it", role)
			}
			return s.session(role, "eks-"+role)
		},
	})
}

func (s *Sim) session(role, name string) (Credentials, error) {
	r, ok := s.iam.Role(role)
	if !ok {
		return Credentials{}, fmt.Errorf("credentials of role %q: no such role", role)
	}
	return s.keys.Issue(s.sts.Session(r, name[:min(len(name), 64)]), lifeOfSession), nil
}
