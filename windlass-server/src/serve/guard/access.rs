//! Who is let in: the tokens in force, each with what it is bound to and its share. Replaced as a whole when the
//! configuration is read again.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::Router;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::load::{Load, Pools};
use super::token::{Mark, Token, Tokens};
use crate::api::roles::Role;
use crate::serve::bound::Bounds;
use crate::serve::config::Settings;

/// How often it is looked whether the token of a stream is over.
const CLOCK_STEP: Duration = Duration::from_secs(60);

/// The API as a token sees it.
pub struct Apis {
    whole: Router,
    bound: Box<MakeApi>,
}

/// Makes the API of a token.
type MakeApi = dyn Fn(&Seen<'_>) -> Router + Send + Sync;

/// What the API of a token depends on.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The token's name, which is written on what it submits.
    pub name: &'a str,
    /// Whether it is an admin's that is bound to nothing.
    pub whole: bool,
    /// What it is bound to.
    pub bounds: &'a Bounds,
    /// Whether payloads are hidden from it.
    pub hides: bool,
}

impl Apis {
    /// The API where no token is asked for, and how to make the one of a token.
    pub fn new(whole: Router, bound: impl Fn(&Seen<'_>) -> Router + Send + Sync + 'static) -> Self {
        Apis { whole, bound: Box::new(bound) }
    }
}

impl From<Router> for Apis {
    /// The same for everybody.
    fn from(whole: Router) -> Self {
        let same = whole.clone();
        Apis::new(whole, move |_| same.clone())
    }
}

/// Somebody who was let in.
#[derive(Clone, Debug)]
pub(super) struct Admitted {
    /// The token's name; `None` where no token is asked for.
    pub(super) name: Option<String>,
    pub(super) role: Role,
    pub(super) payloads_hidden: bool,
    /// Whether it is bound to queues or types.
    pub(super) bound: bool,
    pub(super) share: Option<Arc<Pools>>,
    /// For how long it holds: what lasts longer is ended then.
    pub(super) until: Until,
    pub(super) api: Router,
}

/// The end of a token: its own moment, or the day when it is taken out of the configuration.
#[derive(Clone, Debug)]
pub(super) struct Until {
    expires: Option<Timestamp>,
    revoked: CancellationToken,
}

impl Until {
    /// Waits for it; for ever where no token is asked for.
    pub(super) async fn reached(self) {
        let revoked = self.revoked.cancelled();
        let Some(expires) = self.expires else { return revoked.await };
        let over = async {
            // A step at a time, because the machine's clock may be set meanwhile.
            while let Ok(left) = Duration::try_from(expires.duration_since(Timestamp::now()))
                && !left.is_zero()
            {
                tokio::time::sleep(left.min(CLOCK_STEP)).await;
            }
        };
        tokio::select! {
            () = revoked => {}
            () = over => {}
        }
    }
}

/// Why somebody was not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unknown {
    /// There was no token.
    None,
    /// Nobody has it.
    Wrong,
    /// It is over; its name.
    Over(String),
}

/// What is known of each token.
struct Each {
    tokens: Tokens,
    admitted: Vec<Admitted>,
    /// Ends what is under way without a token when one is asked for.
    nobody: CancellationToken,
}

/// What stays when other tokens are put in force: what tokens have under way still counts, and goes on if they stay as they were.
#[derive(Default)]
struct Kept {
    shares: HashMap<String, Arc<Pools>>,
    tokens: Vec<(Token, CancellationToken)>,
}

impl Each {
    fn kept(&self) -> Kept {
        let share = |one: &Admitted| Some((one.name.clone()?, one.share.clone()?));
        let ends = self.admitted.iter().map(|one| one.until.revoked.clone());
        Kept {
            shares: self.admitted.iter().filter_map(share).collect(),
            tokens: self.tokens.iter().cloned().zip(ends).collect(),
        }
    }
}

pub(super) struct Access {
    apis: Apis,
    hiding: Hiding,
    each: RwLock<Each>,
}

/// What is kept from whom.
#[derive(Clone, Copy, Debug)]
struct Hiding {
    /// Whether only those who run jobs or look after them see payloads.
    payloads: bool,
    /// Whether everybody may only look.
    acts: bool,
}

impl Hiding {
    /// Where nobody may act, everybody may look, but for those who never might.
    fn role(self, own: Role) -> Role {
        if self.acts && own != Role::Submit { Role::Read } else { own }
    }

    fn payloads_from(self, role: Role) -> bool {
        self.payloads && !role.sees_payloads()
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access")
    }
}

impl Access {
    pub(super) fn new(apis: Apis, settings: &Settings, load: &Load) -> Self {
        let hiding = Hiding { payloads: settings.hide_payloads, acts: settings.read_only };
        let each = Each::new(&apis, settings.tokens.clone(), hiding, load, Kept::default());
        Access { apis, hiding, each: RwLock::new(each) }
    }

    /// Puts other tokens in force. A token that stays keeps its share; what one that is gone or changed has under way ends.
    pub(super) fn replace(&self, tokens: Tokens, load: &Load) {
        let mut each = self.each.write().expect("nothing panics while it holds this lock");
        let (kept, nobody) = (each.kept(), each.nobody.clone());
        *each = Each::new(&self.apis, tokens, self.hiding, load, kept);
        if each.tokens.is_empty() {
            each.nobody = nobody;
        } else {
            nobody.cancel();
        }
    }

    /// Whether a token is asked for.
    pub(super) fn asks(&self) -> bool {
        !self.each.read().expect("nothing panics while it holds this lock").tokens.is_empty()
    }

    /// Who presents this.
    pub(super) fn admit(&self, presented: Option<&str>) -> Result<Admitted, Unknown> {
        let each = self.each.read().expect("nothing panics while it holds this lock");
        if each.tokens.is_empty() {
            let api = self.apis.whole.clone();
            let role = self.hiding.role(Role::Admin);
            let payloads_hidden = self.hiding.payloads_from(role);
            let until = Until { expires: None, revoked: each.nobody.clone() };
            return Ok(Admitted { name: None, role, payloads_hidden, bound: false, share: None, until, api });
        }
        let (place, _) = in_force(each.tokens.find(presented.ok_or(Unknown::None)?))?;
        Ok(each.admitted[place].clone())
    }

    /// Who signed in with the token of this mark.
    pub(super) fn admit_marked(&self, mark: &Mark) -> Result<Admitted, Unknown> {
        let each = self.each.read().expect("nothing panics while it holds this lock");
        let (place, _) = in_force(each.tokens.marked(mark))?;
        Ok(each.admitted[place].clone())
    }

    /// The mark of the token that somebody signs in with.
    pub(super) fn mark(&self, presented: &str) -> Result<Mark, Unknown> {
        let each = self.each.read().expect("nothing panics while it holds this lock");
        in_force(each.tokens.find(presented)).map(|(_, token)| token.mark())
    }
}

fn in_force(found: Option<(usize, &Token)>) -> Result<(usize, &Token), Unknown> {
    let (place, token) = found.ok_or(Unknown::Wrong)?;
    if token.is_over(Timestamp::now()) {
        return Err(Unknown::Over(token.name().to_owned()));
    }
    Ok((place, token))
}

impl Each {
    fn new(apis: &Apis, tokens: Tokens, hiding: Hiding, load: &Load, kept: Kept) -> Self {
        let Kept { mut shares, tokens: mut before } = kept;
        let admitted = tokens.iter().map(|token| {
            let stays = before.iter().position(|(old, _)| old == token).map(|place| before.swap_remove(place).1);
            let until = Until { expires: token.ends_at(), revoked: stays.unwrap_or_default() };
            let role = hiding.role(token.role());
            let whole = role == Role::Admin && token.bounds().is_empty();
            let payloads_hidden = hiding.payloads_from(role);
            let share = shares.entry(token.name().to_owned()).or_insert_with(|| Arc::new(load.share()));
            Admitted {
                name: Some(token.name().to_owned()),
                role,
                payloads_hidden,
                bound: !token.bounds().is_empty(),
                share: Some(Arc::clone(share)),
                until,
                api: (apis.bound)(&Seen { name: token.name(), whole, bounds: token.bounds(), hides: payloads_hidden }),
            }
        });
        let admitted = admitted.collect();
        before.into_iter().for_each(|(_, gone)| gone.cancel());
        Each { tokens, admitted, nobody: CancellationToken::new() }
    }
}
