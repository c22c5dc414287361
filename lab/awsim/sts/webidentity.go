package sts

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/iam"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type webIdentityInput struct {
	common
	WebIdentityToken string  `query:"WebIdentityToken,required"`
	ProviderID       *string `query:"ProviderId,unsupported"`
}

type webIdentityOutput struct {
	SubjectFromWebIdentityToken string
	Audience                    string
	AssumedRoleUser             assumedRoleUser
	Credentials                 xmlCredentials
	Provider                    string
}

func (s *STS) assumeRoleWithWebIdentity(r *protocol.Request, in *webIdentityInput) (*webIdentityOutput, error) {
	const action = "sts:AssumeRoleWithWebIdentity"
	role, life, err := s.role(&in.common, action, "")
	if err != nil {
		return nil, err
	}
	token, err := parseToken(in.WebIdentityToken)
	if err != nil {
		return nil, err
	}
	if now := s.cfg.Now(); !now.Before(time.Unix(token.Expires, 0)) {
		return nil, protocol.Errorf(
			"ExpiredTokenException",
			"Token expired: current date/time %d must be before the expiration date/time %d",
			now.Unix(),
			token.Expires,
		)
	}
	issuer := strings.TrimPrefix(token.Issuer, "https://")
	provider := "arn:aws:iam::" + s.cfg.AccountID + ":oidc-provider/" + issuer
	// A policy tests one audience; a token for several is for each of them.
	at := slices.IndexFunc(token.Audience, func(audience string) bool {
		return role.Trusts(iam.Assumption{Action: action, Federated: provider, Keys: map[string]string{
			strings.ToLower(issuer) + ":sub": token.Subject, strings.ToLower(issuer) + ":aud": audience,
		}})
	})
	if at < 0 {
		return nil, denied(action, in.RoleARN, "")
	}
	credentials, user := s.issue(role, in.RoleSessionName, life)
	r.Touch(user.ARN)
	return &webIdentityOutput{
		SubjectFromWebIdentityToken: token.Subject, Audience: token.Audience[at], AssumedRoleUser: user, Credentials: credentials,
		Provider: provider,
	}, nil
}

// claims are what STS reads of a JSON web token.
type claims struct {
	Issuer   string    `json:"iss"`
	Subject  string    `json:"sub"`
	Audience audiences `json:"aud"`
	Expires  int64     `json:"exp"` // seconds since 1970
}

// audiences is one string or a list of them.
type audiences []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audiences) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

func parseToken(token string) (claims, error) {
	var c claims
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, protocol.Errorf(
			"InvalidIdentityToken",
			"The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)",
		)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return c, protocol.Errorf("InvalidIdentityToken", "The ID Token provided is not a valid JWT.")
	}
	if err := json.Unmarshal(payload, &c); err != nil {
		return c, protocol.Errorf("InvalidIdentityToken", "The ID Token provided is not a valid JWT.")
	}
	switch {
	case c.Issuer == "":
		return c, missingClaim("iss")
	case c.Subject == "":
		return c, missingClaim("sub")
	case len(c.Audience) == 0:
		return c, missingClaim("aud")
	case c.Expires == 0:
		return c, missingClaim("exp")
	}
	return c, nil
}

func missingClaim(name string) error {
	return protocol.Errorf("InvalidIdentityToken", "Missing a required claim: %s", name)
}
