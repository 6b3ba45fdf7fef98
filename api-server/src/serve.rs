//! The running server: role `all` claims and migrates its database and starts a supervisor, role
//! `api` serves over a database that others migrate and process.

use std::sync::Arc;

use powercontext_api_server::{Absence, App, AppParts, Limits, Processing, bounds, router};
use powercontext_core::ambient::{SystemClock, SystemIds};
use powercontext_inference::GenerationConfig;
use powercontext_program::serving::{Serving, listen, until_signal};
use powercontext_program::{Failure, ProcessingState, Signals, processing, start};
use powercontext_settings::Settings;
use powercontext_store::Store;
use powercontext_worker::wiring::{self, TopicModel};
use tokio::net::TcpListener;

use crate::migrating;

/// Topic processing as HTTP sees it, or why there is none.
type Seen = Result<Arc<dyn Processing>, Absence>;

/// The supervisor of this process as HTTP sees it.
struct Embedded(Arc<processing::Processing>);

impl Processing for Embedded {
    fn wake(&self) {
        self.0.wake();
    }

    fn state(&self) -> ProcessingState {
        self.0.state()
    }
}

/// Topics are processed by other processes, which find a flush in the database.
struct Elsewhere;

impl Processing for Elsewhere {
    fn wake(&self) {}

    fn state(&self) -> ProcessingState {
        ProcessingState::Remote
    }
}

/// Runs role `all` until a signal asks to stop.
pub async fn all(settings: &Settings) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let options = start::store_options(settings)?;
    let plan = match model(settings)? {
        Ok(config) => Ok(processing::Plan::new(settings, &config, &options.url)?),
        Err(absence) => Err(absence),
    };
    let _claim = migrating::claim(&options)?;
    let opening = async {
        migrating::apply(&options).await?;
        Ok((start::open(&options).await?, listen(&settings.http).await?))
    };
    let Some((store, listener)) = start::unless_stopped(&mut signals, opening).await? else { return Ok(()) };
    let own = plan.map(|plan| Arc::new(processing::Processing::start(plan, &store)));
    let seen = own.clone().map(|own| Arc::new(Embedded(own)) as Arc<dyn Processing>);
    serve(settings, (store, listener), (seen, own.ok()), &mut signals).await
}

/// Runs role `api` until a signal asks to stop.
pub async fn api(settings: &Settings) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let seen = model(settings)?.map(|_| Arc::new(Elsewhere) as Arc<dyn Processing>);
    let options = start::store_options(settings)?;
    let opening = async { Ok((start::open(&options).await?, listen(&settings.http).await?)) };
    let Some((store, listener)) = start::unless_stopped(&mut signals, opening).await? else { return Ok(()) };
    serve(settings, (store, listener), (seen, None), &mut signals).await
}

/// The model of Topic processing; without one that it supports a flush answers 503 (TM-085).
fn model(settings: &Settings) -> Result<Result<GenerationConfig, Absence>, Failure> {
    Ok(match wiring::topic_model(settings).map_err(Failure::configuration)? {
        TopicModel::Supported(config) => Ok(config),
        TopicModel::Unset => {
            tracing::warn!(
                event = "topic_processing.unavailable",
                "no generation model is set, so Topics are not processed and a flush answers 503; set \
                 POWERCONTEXT_SERVER_INFERENCE_GENERATION_MODEL, for example to builtin:extractive"
            );
            Err(Absence::NotConfigured)
        }
        TopicModel::Unsupported(refused) => {
            tracing::error!(
                event = "topic_processing.unavailable",
                error = %refused,
                "Topics are not processed and a flush answers 503"
            );
            Err(Absence::NotSupported)
        }
    })
}

async fn serve(
    settings: &Settings,
    (store, listener): (Store, TcpListener),
    (seen, own): (Seen, Option<Arc<processing::Processing>>),
    signals: &mut Signals,
) -> Result<(), Failure> {
    let limits = Limits {
        database_time: store.is_shared().then_some(settings.database.request_timeout),
        ..Limits::new(settings.http.max_body_bytes, settings.http.max_concurrent_requests)
    };
    let app = App::new(AppParts {
        store: store.clone(),
        ids: Arc::new(SystemIds),
        clock: Arc::new(SystemClock::start()),
        processing: seen,
        limits,
    });
    let serving = Serving {
        http: &settings.http,
        listener,
        router: router(app.clone()),
        bounds: bounds(&app),
        store,
        processing: own,
    };
    until_signal(serving, || app.start_draining(), signals).await
}
