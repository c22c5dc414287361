package awsim

import (
	"fmt"
	"path"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
	"github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
	"github.com/dovetail-k8s/dovetail/lab/awsim/eks"
	"github.com/dovetail-k8s/dovetail/lab/awsim/iam"
	"github.com/dovetail-k8s/dovetail/lab/awsim/image"
	"github.com/dovetail-k8s/dovetail/lab/awsim/pricing"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
	"github.com/dovetail-k8s/dovetail/lab/awsim/sqs"
	"github.com/dovetail-k8s/dovetail/lab/awsim/ssm"
	"github.com/dovetail-k8s/dovetail/lab/awsim/sts"
)

// services are the parts of the account besides EC2.
type services struct {
	iam     *iam.Account
	sts     *sts.STS
	ssm     *ssm.Store
	eks     *eks.EKS
	sqs     *sqs.SQS
	pricing *pricing.PriceList
}

func newServices(o Options, keys *credential.Ring) services {
	now := o.Clock.Now
	account := iam.NewAccount(iam.Config{AccountID: o.AccountID, Seed: o.Seed, Now: now})
	return services{
		iam: account,
		sts: sts.New(sts.Config{AccountID: o.AccountID, IAM: account, Keys: keys, Now: now}),
		ssm: ssm.New(ssm.Config{
			Region: o.Region, AccountID: o.AccountID, Public: image.Parameters(o.Region), PublicSince: now(), Now: now,
		}),
		eks:     eks.New(eks.Config{Region: o.Region, AccountID: o.AccountID, Seed: o.Seed, IAM: account, Now: now}),
		sqs:     sqs.New(sqs.Config{Region: o.Region, AccountID: o.AccountID, Seed: o.Seed, Clock: o.Clock}),
		pricing: pricing.New(func() (*offline.Catalog, error) { return offline.Load() }),
	}
}

// wired returns the API handlers of the services.
func (s services) wired() []protocol.Service {
	return []protocol.Service{
		s.iam.Service(), s.sts.Service(), s.ssm.Service(), s.eks.Service(), s.sqs.Service(), s.pricing.Service(),
	}
}

// IAM is the part of the account that holds roles and instance profiles.
func (s *Sim) IAM() *iam.Account { return s.iam }

// SSM is the part of the account that holds parameters.
func (s *Sim) SSM() *ssm.Store { return s.ssm }

// EKS is the part of the account that holds clusters and their access entries.
func (s *Sim) EKS() *eks.EKS { return s.eks }

// SQS is the part of the account that holds queues.
func (s *Sim) SQS() *sqs.SQS { return s.sqs }

// lifeOfCredentials is far beyond what STS gives. A process in the real AWS renews its credentials from a source that
// the simulator is not; what it is handed here must outlast it.
const lifeOfCredentials = 365 * 24 * time.Hour

// RoleCredentials returns session credentials of a role, without querying its trust policy. The session is called
// dovetail-lab.
func (s *Sim) RoleCredentials(role string) (Credentials, error) {
	return s.SessionCredentials(role, "dovetail-lab")
}

// SessionCredentials is RoleCredentials for a session of another name, by which its calls are known from those of
// others.
func (s *Sim) SessionCredentials(role, session string) (Credentials, error) {
	return s.sessionCredentials(role, session)
}

// InstanceCredentials returns what the metadata service of an instance hands out: session credentials of the role in
// its instance profile, the session named by the instance ID.
func (s *Sim) InstanceCredentials(instanceID string) (Credentials, error) {
	i, ok := s.ec2.Instance(instanceID)
	switch {
	case !ok:
		return Credentials{}, fmt.Errorf("credentials of instance %s: no such instance", instanceID)
	case i.RoleARN == "":
		return Credentials{}, fmt.Errorf("credentials of instance %s: no role", instanceID)
	}
	return s.sessionCredentials(path.Base(i.RoleARN), instanceID)
}

func (s *Sim) sessionCredentials(role, session string) (Credentials, error) {
	r, ok := s.iam.Role(role)
	if !ok {
		return Credentials{}, fmt.Errorf("credentials of role %q: no such role", role)
	}
	return s.keys.Issue(s.sts.Session(r, session), lifeOfCredentials), nil
}

// profiles shows EC2 the instance profiles of IAM.
type profiles struct{ iam *iam.Account }

// InstanceProfile implements ec2.Profiles.
func (p profiles) InstanceProfile(name string) (ec2.InstanceProfile, bool) {
	found, ok := p.iam.InstanceProfile(name)
	if !ok {
		return ec2.InstanceProfile{}, false
	}
	out := ec2.InstanceProfile{Name: found.Name, ARN: found.ARN, ID: found.ID, Created: found.Created, RoleChanged: found.RoleChanged}
	if found.Role != nil {
		out.RoleARN = found.Role.ARN
	}
	return out, true
}
