// Package sts simulates the AWS Security Token Service: who am I, and be somebody else.
//
// Trust policies are evaluated (see iam.Role.Trusts). Neither request signatures nor those of web identity tokens are
// verified; their expiry is.
package sts

import (
	"net/http"
	"regexp"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
	"github.com/dovetail-k8s/dovetail/lab/awsim/iam"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// presignedLife is how long a presigned GetCallerIdentity is good for. STS goes by the date of the signature alone: the
// X-Amz-Expires of such a URL, 60 s in the tokens of EKS, does not shorten it.
const presignedLife = 15 * time.Minute

// clockSkew is how far the date of a signature may lie ahead.
const clockSkew = 5 * time.Minute

// Config is what STS needs of the account.
type Config struct {
	AccountID string
	IAM       *iam.Account
	Keys      *credential.Ring
	Now       func() time.Time
}

// STS issues and explains credentials.
type STS struct{ cfg Config }

// New returns the STS of an account.
func New(cfg Config) *STS { return &STS{cfg: cfg} }

// Service returns the API handlers of STS.
func (s *STS) Service() protocol.Service {
	return protocol.Service{
		Name: "sts", Protocol: protocol.AWSQuery, Version: "2011-06-15", Namespace: "https://sts.amazonaws.com/doc/2011-06-15/", Global: true,
		Handlers: map[string]protocol.Handler{
			"AssumeRole":                protocol.Query(s.assumeRole),
			"AssumeRoleWithWebIdentity": protocol.Query(s.assumeRoleWithWebIdentity),
			"GetCallerIdentity":         protocol.Query(s.getCallerIdentity),
		},
		Unsigned: []string{"AssumeRoleWithWebIdentity"},
		// Every caller may call GetCallerIdentity; the trust policy decides who may assume a role.
		Permissions: func(*protocol.Request) []protocol.RequiredPermission { return nil },
	}
}

// Session is the principal of a role session.
func (s *STS) Session(role iam.Role, session string) credential.Principal {
	return credential.Principal{
		AccountID: s.cfg.AccountID,
		ARN:       "arn:aws:sts::" + s.cfg.AccountID + ":assumed-role/" + role.Name + "/" + session,
		UserID:    role.ID + ":" + session,
		Role:      role.Name,
		RoleARN:   role.ARN,
		Session:   session,
	}
}

type callerIdentity struct {
	ARN     string `xml:"Arn"`
	UserID  string `xml:"UserId"`
	Account string
}

func (s *STS) getCallerIdentity(r *protocol.Request, _ *struct{}) (*callerIdentity, error) {
	if r.Presigned {
		if err := s.checkPresigned(r.HTTP); err != nil {
			return nil, err
		}
	}
	return &callerIdentity{ARN: r.Principal.ARN, UserID: r.Principal.UserID, Account: r.Principal.AccountID}, nil
}

// checkPresigned checks the dates of a presigned URL.
func (s *STS) checkPresigned(hr *http.Request) error {
	const layout = "20060102T150405Z"
	query := hr.URL.Query()
	date := query.Get("X-Amz-Date")
	signed, err := time.Parse(layout, date)
	if err != nil {
		return protocol.Errorf(
			"IncompleteSignature",
			"Date must be in ISO-8601 'basic format'. Got '%s'.",
			date,
		).WithStatus(
			http.StatusForbidden,
		)
	}
	now := s.cfg.Now().UTC()
	if now.After(signed.Add(presignedLife)) {
		return protocol.Errorf("SignatureDoesNotMatch", "Signature expired: %s is now earlier than %s (%s - 15 min.)",
			date, now.Add(-presignedLife).Format(layout), now.Format(layout)).WithStatus(http.StatusForbidden)
	}
	if signed.After(now.Add(clockSkew)) {
		return protocol.Errorf("SignatureDoesNotMatch", "Signature not yet current: %s is still later than %s (%s + 5 min.)",
			date, now.Add(clockSkew).Format(layout), now.Format(layout)).WithStatus(http.StatusForbidden)
	}
	return nil
}

var (
	sessionPattern = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)
	rolePattern    = regexp.MustCompile(`^arn:aws[\w-]*:iam::(\d{12}):role/(?:[!-~]*/)?([\w+=,.@-]+)$`)
)

const (
	shortestSession = 15 * time.Minute
	defaultSession  = time.Hour
	chainedSession  = time.Hour // the longest that a role session may give another
)

// common are the parameters of both ways to assume a role.
type common struct {
	RoleARN         string    `query:"RoleArn,required"`
	RoleSessionName string    `query:"RoleSessionName,required"`
	DurationSeconds *int      `query:"DurationSeconds"`
	Policy          *string   `query:"Policy,unsupported"`
	PolicyARNs      *struct{} `query:"PolicyArns,unsupported"`
}

// role returns the role that is requested, and how long the session shall last. A role that does not exist is denied,
// not missing: STS does not report.
func (s *STS) role(in *common, action, caller string) (iam.Role, time.Duration, error) {
	none := iam.Role{}
	arn := rolePattern.FindStringSubmatch(in.RoleARN)
	if arn == nil {
		return none, 0, protocol.Errorf("ValidationError", "%s is invalid", in.RoleARN)
	}
	if !sessionPattern.MatchString(in.RoleSessionName) {
		return none, 0, protocol.Errorf(
			"ValidationError",
			`1 validation error detected: Value '%s' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\w+=,.@-]*`,
			in.RoleSessionName,
		)
	}
	life := defaultSession
	if in.DurationSeconds != nil {
		life = time.Duration(*in.DurationSeconds) * time.Second
	}
	if life < shortestSession {
		return none, 0, protocol.Errorf(
			"ValidationError",
			"1 validation error detected: Value '%d' at 'durationSeconds' failed to satisfy constraint: Member must have value greater than or equal to 900",
			*in.DurationSeconds,
		)
	}
	role, ok := s.cfg.IAM.Role(arn[2])
	if !ok || role.ARN != in.RoleARN {
		return none, 0, denied(action, in.RoleARN, caller)
	}
	if life > role.MaxSession {
		return none, 0, protocol.Errorf("ValidationError", "The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
	}
	return role, life, nil
}

func denied(action, resource, caller string) error {
	who := ""
	if caller != "" {
		who = "User: " + caller + " is not authorized"
	} else {
		who = "Not authorized"
	}
	return protocol.Errorf("AccessDenied", "%s to perform: %s on resource: %s", who, action, resource).WithStatus(http.StatusForbidden)
}

type xmlCredentials struct {
	AccessKeyID     string `xml:"AccessKeyId"`
	SecretAccessKey string
	SessionToken    string
	Expiration      time.Time
}

type assumedRoleUser struct {
	AssumedRoleID string `xml:"AssumedRoleId"`
	ARN           string `xml:"Arn"`
}

// issue makes the credentials of a session.
func (s *STS) issue(role iam.Role, session string, life time.Duration) (xmlCredentials, assumedRoleUser) {
	p := s.Session(role, session)
	return xmlCredentials(s.cfg.Keys.Issue(p, life)), assumedRoleUser{AssumedRoleID: p.UserID, ARN: p.ARN}
}

type assumeRoleInput struct {
	common
	ExternalID       string    `query:"ExternalId"`
	SerialNumber     *string   `query:"SerialNumber,unsupported"`
	TokenCode        *string   `query:"TokenCode,unsupported"`
	SourceIdentity   *string   `query:"SourceIdentity,unsupported"`
	Tags             *struct{} `query:"Tags,unsupported"`
	TransitiveKeys   *struct{} `query:"TransitiveTagKeys,unsupported"`
	ProvidedContexts *struct{} `query:"ProvidedContexts,unsupported"`
}

type assumeRoleOutput struct {
	Credentials     xmlCredentials
	AssumedRoleUser assumedRoleUser
}

func (s *STS) assumeRole(r *protocol.Request, in *assumeRoleInput) (*assumeRoleOutput, error) {
	role, life, err := s.role(&in.common, "sts:AssumeRole", r.Principal.ARN)
	if err != nil {
		return nil, err
	}
	if r.Principal.Role != "" && life > chainedSession {
		return nil, protocol.Errorf(
			"ValidationError",
			"The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining",
		)
	}
	attempt := iam.Assumption{Action: "sts:AssumeRole", Caller: r.Principal, Keys: map[string]string{}}
	if in.ExternalID != "" {
		attempt.Keys["sts:externalid"] = in.ExternalID
	}
	if !role.Trusts(attempt) {
		return nil, denied("sts:AssumeRole", in.RoleARN, r.Principal.ARN)
	}
	credentials, user := s.issue(role, in.RoleSessionName, life)
	r.Touch(user.ARN)
	return &assumeRoleOutput{Credentials: credentials, AssumedRoleUser: user}, nil
}
